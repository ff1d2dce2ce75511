// The shared worker: one live stream for all tabs of a browser, which allows six per server only.

import { LiveFeed } from "./live-feed.js";
import { asSnapshot, nothing, take } from "./live-state.js";

const ports = new Set();
let state = nothing();
let status = { what: "connecting", why: "", heard: 0 };

const tell = (message) => {
  for (const port of ports) port.postMessage(message);
};

const feed = new LiveFeed({
  message(kind, data) {
    take(state, kind, data);
    status.heard = Date.now();
    tell({ kind, data, heard: status.heard });
  },
  status(what, why = "") {
    status = { what, why, heard: what === "live" ? Date.now() : status.heard };
    tell({ kind: "status", ...status });
  },
});

self.onconnect = (event) => {
  const port = event.ports[0];
  port.onmessage = ({ data }) => {
    if (data === "bye") ports.delete(port);
    if (data === "anew") {
      state = nothing();
      feed.open({ anew: true });
    }
    if (data === "hello") hello(port);
  };
};

function hello(port) {
  const first = ports.size === 0;
  ports.add(port);
  port.postMessage({ kind: "status", ...status });
  if (state.known) port.postMessage({ kind: "snapshot", data: asSnapshot(state), heard: status.heard });
  if (first || status.what === "out") feed.open({ anew: status.what === "out" });
}
