// The map: a tile for each node, a cell for each GPU, split by the shares that jobs have of it.

import { html, nothing, svg } from "../vendor/lit-html.js";
import { guard } from "../vendor/directives/guard.js";
import { repeat } from "../vendor/directives/repeat.js";
import { amount, percent, plain, plural } from "./format.js";

const CELL = 16;
const GAP = 3;
const PER_ROW = 8;
const USES = [0.05, 0.25, 0.5, 0.75];

/** By what cells are coloured, in words. */
export const COLOURS = { queue: "queue", state: "state of the job", use: "use", health: "health" };

/**
 * What colours a part of a cell: a class and the word for it.
 *
 * @param {{mode: string, jobs: Map<string, import("../types.js").JobView>, queues: string[]}} look
 * @param {import("../types.js").DeviceView} device
 * @param {{job?: string, share?: number}} held
 */
function paint(look, device, held) {
  const job = look.jobs.get(held.job);
  if (look.mode === "use") return useOf(device);
  if (look.mode === "health") return ["c-held", "in use"];
  if (!job) return ["c-other", "another job"];
  if (look.mode === "state") return [`c-${job.state}`, job.state];
  const index = look.queues.indexOf(job.queue);
  return [index < 0 ? "c-other" : `c-q${index % 8}`, job.queue];
}

function useOf(device) {
  if (device.use === null || device.use === undefined) return ["c-unknown", "use not reported"];
  const step = USES.findIndex((bound) => device.use < bound);
  return [`c-u${step < 0 ? 4 : step}`, `${percent(device.use)} at work`];
}

/** @param {import("../types.js").NodeView} node */
export const isOut = (node) => node.state !== "up";
export const gpuFailed = (device) => !device.healthy;

/** All tiles; arrow keys move between them. */
export function gpuMap(nodes, look) {
  return html`${patterns()}
    <ul
      class="map ${look.one ? "map-one" : ""}"
      aria-label="Nodes"
      @keydown=${walk}
      @pointerover=${(event) => look.hover?.(event.target.dataset?.job ?? "")}
      @pointerleave=${() => look.hover?.("")}
    >
      ${repeat(
        nodes,
        (node) => node.id,
        (node, index) =>
          html`<li>${guard([signature(node, look), index === 0], () => tile(node, look, index === 0))}</li>`,
      )}
    </ul>`;
}

/** All that a tile shows, so that it is drawn again when something of it changed only. */
function signature(node, look) {
  const cells = node.devices.map((device) => {
    const parts = device.jobs.map((held) => `${held.job}:${held.share}:${paint(look, device, held)[0]}`);
    const use = look.mode === "use" ? useOf(device)[0] : "";
    return `${device.healthy ? "" : "!"}${use}${parts.join(",")}`;
  });
  return `${node.state}|${look.mode}|${look.one}|${node.gpus_free}|${cells.join(";")}`;
}

function tile(node, look, first) {
  const rows = Math.max(1, Math.ceil(node.devices.length / PER_ROW));
  const wide = Math.min(PER_ROW, Math.max(1, node.devices.length)) * (CELL + GAP);
  return html`<a
    class="tile-node node-is-${node.state}"
    href="/nodes/${encodeURIComponent(node.id)}"
    tabindex=${first ? 0 : -1}
    aria-label=${inWords(node)}
  >
    <span class="tile-name">${plain(node.id)}</span>
    <svg width=${wide} height=${rows * (CELL + GAP)} aria-hidden="true">
      ${node.devices.map((device, index) => cell(node, device, index, look))}
    </svg>
  </a>`;
}

/** @param {import("../types.js").NodeView} node */
function inWords(node) {
  const failed = node.gpus_failed ? `, ${plural(node.gpus_failed, "GPU")} failed` : "";
  return plain(`${node.id}, ${node.state}: ${amount(node.gpus_free)} of ${plural(node.gpus, "GPU")} free${failed}`);
}

/** @param {import("../types.js").NodeView} node @param {import("../types.js").DeviceView} device */
function cell(node, device, index, look) {
  const x = (index % PER_ROW) * (CELL + GAP);
  const y = Math.floor(index / PER_ROW) * (CELL + GAP);
  let top = y;
  const parts = device.jobs.map((held) => {
    const [kind, word] = paint(look, device, held);
    const tall = CELL * Math.min(1, held.share);
    const faded = look.one && look.one !== held.job ? "faded" : "";
    const drawn = svg`<rect class="part ${kind} ${faded}" x=${x} y=${top} width=${CELL} height=${tall} data-job=${held.job || ""}>
      <title>${plain(`GPU ${device.index}: ${held.job || "another job"}${held.share < 1 ? `, ${percent(held.share)}` : ""} (${word})`)}</title></rect>`;
    top += tall;
    return drawn;
  });
  const empty = look.mode === "use" && !device.jobs.length ? useOf(device)[0] : "c-free";
  return svg`<rect class="cell ${empty}" x=${x + 0.5} y=${y + 0.5} width=${CELL - 1} height=${CELL - 1}><title>${`GPU ${device.index}: free`}</title></rect>
    ${parts}
    ${isOut(node) ? svg`<rect class="hatch" x=${x} y=${y} width=${CELL} height=${CELL} fill="url(#hatch)"></rect>` : nothing}
    ${gpuFailed(device) ? svg`<g class="c-failed-gpu"><rect x=${x} y=${y} width=${CELL} height=${CELL}></rect><path d="M${x + 4} ${y + 4}l8 8m0-8l-8 8"></path><title>${plain(`GPU ${device.index} is out of use: ${device.notice?.reason || "it failed"}`)}</title></g>` : nothing}`;
}

/** Hatches say "out of service" without a colour. */
function patterns() {
  return html`<svg class="hidden" aria-hidden="true">
    <defs>
      <pattern id="hatch" width="5" height="5" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">
        <path class="hatch-gap" d="M2 0v5" />
        <path class="hatch-line" d="M0 0v5" />
      </pattern>
    </defs>
  </svg>`;
}

function walk(event) {
  const tiles = [...event.currentTarget.querySelectorAll(".tile-node")];
  const at = tiles.indexOf(document.activeElement);
  if (at < 0) return;
  const columns = tiles.filter((one) => one.offsetTop === tiles[0].offsetTop).length || 1;
  const step = {
    ArrowLeft: -1,
    ArrowRight: 1,
    ArrowUp: -columns,
    ArrowDown: columns,
    Home: -at,
    End: tiles.length - 1 - at,
  }[event.key];
  const next = step === undefined ? null : tiles[at + step];
  if (!next) return;
  event.preventDefault();
  next.focus();
}

/** What the colours mean. */
export function legend(look) {
  const keys = {
    queue: look.queues.slice(0, 8).map((name, index) => [`c-q${index}`, name]),
    state: ["starting", "running", "suspended", "resizing"].map((state) => [`c-${state}`, state]),
    use: [
      ["c-u0", "under 5 %"],
      ["c-u1", "under 25 %"],
      ["c-u2", "under 50 %"],
      ["c-u3", "under 75 %"],
      ["c-u4", "75 % or more"],
      ["c-unknown", "not reported"],
    ],
    health: [["c-held", "in use"]],
  }[look.mode];
  const each = [...keys, ["c-free", "free"]];
  const swatch = (kind) => svg`<rect class="part cell ${kind}" x="1" y="1" width="12" height="12"></rect>`;
  return html`<ul class="legend" aria-label="Colours">
    ${each.map(([kind, word]) => html`<li><svg width="14" height="14" aria-hidden="true">${swatch(kind)}</svg>${plain(word)}</li>`)}
    <li>
      <svg width="14" height="14" aria-hidden="true">
        <rect class="cell c-free" x="1" y="1" width="12" height="12"></rect>
        <rect width="14" height="14" fill="url(#hatch)"></rect></svg
      >out of service
    </li>
    <li>
      <svg width="14" height="14" aria-hidden="true">
        <g class="c-failed-gpu">
          <rect width="14" height="14"></rect>
          <path d="m3 3 8 8m0-8-8 8"></path>
        </g></svg
      >failed
    </li>
  </ul>`;
}
