// States of jobs and nodes: an icon, the word and a colour, never a colour alone.

import { html } from "../vendor/lit-html.js";
import { icon } from "./icons.js";
import { plain } from "./format.js";

/** All states, in the order in which jobs meet them. */
export const STATES = ["queued", "starting", "running", "suspended", "resizing", "succeeded", "failed", "cancelled"];
export const OPEN = STATES.slice(0, 5);
const OVER = new Set(STATES.slice(5));

/** @param {{state: string}} job */
export const isOver = (job) => OVER.has(job.state);

export function stateMark(state) {
  return html`<span class="state state-${state}">${icon(state)}${state}</span>`;
}

const NODE_ICONS = { up: "succeeded", lost: "failed", cordoned: "drained", draining: "drained", drained: "drained" };

export function nodeMark(state) {
  return html`<span class="state node-${state}">${icon(NODE_ICONS[state] ?? "warning")}${state}</span>`;
}

/** A job by its name, as a link. */
export function jobLink(job) {
  const id = typeof job === "string" ? job : job.id;
  return html`<a class="job-link" href="/jobs/${encodeURIComponent(id)}">${plain(id)}</a>`;
}

/** What a job asks for or holds: 2 workers × ½ A100. */
export function gpusText(/** @type {import("../types.js").JobView} */ job) {
  const held = Number(job.gpus_held.toFixed(2));
  const asked = Number(job.gpus.toFixed(2));
  return isOver(job) || job.state === "queued" ? String(asked) : `${held} of ${asked}`;
}

/** The nodes that a job is on. */
export function nodesOf(/** @type {import("../types.js").JobView} */ job) {
  return [...new Set(job.placement.map((part) => part.node))];
}
