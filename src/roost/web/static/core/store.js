// The cluster as the live stream tells it, for all pages of this tab.

import { LiveFeed } from "./live-feed.js";
import { nothing, take } from "./live-state.js";
import { redraw } from "./redraw.js";

/** @type {Set<(ids: string[], kind: string) => void>} */
const listeners = new Set();
let port = null;
let own = null;
let offset = -Infinity;

export const cluster = nothing();
/** How the stream is: connecting, live, retrying, or out (logged out). */
export const link = { what: "connecting", why: "", heard: 0 };

/** Now, by the server's clock, in seconds. */
export function now() {
  return Date.now() / 1000 + (offset === -Infinity ? 0 : offset);
}

/** What the server's clock showed when it said something: what is late only shows too little. */
export function noteTime(time) {
  offset = Math.max(offset, time - Date.now() / 1000);
}

/** Be told which jobs changed; returns how to stop. */
export function listen(listener) {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

/** Begin to hear: by the worker that all tabs share, else by a stream of this tab's own. */
export function begin() {
  if (port || own) return;
  if (typeof SharedWorker === "function") {
    const file = new URL("./live-worker.js", import.meta.url);
    port = new SharedWorker(file, { type: "module", name: "roost" }).port;
    port.onmessage = ({ data }) => heard(data);
    port.postMessage("hello");
    addEventListener("pagehide", () => port.postMessage("bye"));
    addEventListener("pageshow", (event) => event.persisted && port.postMessage("hello"));
  } else {
    own = new LiveFeed({
      message: (kind, data) => heard({ kind, data, heard: Date.now() }),
      status: (what, why) => heard({ kind: "status", what, why, heard: link.heard }),
    });
    own.open();
  }
}

/** Begin anew: somebody else is logged in. */
export function beginAnew() {
  Object.assign(cluster, nothing());
  if (!port && !own) begin();
  port?.postMessage("anew");
  own?.open({ anew: true });
}

function heard(message) {
  if (message.kind === "status") {
    Object.assign(link, { what: message.what, why: message.why, heard: message.heard });
    if (message.what === "out") document.dispatchEvent(new CustomEvent("roost-logged-out"));
    redraw();
    return;
  }
  link.heard = message.heard;
  if (typeof message.data.time === "number") noteTime(message.data.time);
  const named = take(cluster, message.kind, message.data);
  for (const listener of listeners) listener(named, message.kind);
  redraw();
}
