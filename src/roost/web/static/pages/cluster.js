// The whole cluster at once: how full it is, what is broken, where there is room.

import { html, nothing } from "../vendor/lit-html.js";
import { get } from "../core/api.js";
import { Resource, seldom } from "../core/resource.js";
import { redraw } from "../core/redraw.js";
import { place, setQuery } from "../core/router.js";
import { cluster, link, listen } from "../core/store.js";
import { amount, clock, mebibytes, percent, plain, plural } from "../parts/format.js";
import { COLOURS, gpuFailed, gpuMap, isOut, legend } from "../parts/gpu-map.js";
import { empty, skeleton } from "../parts/shown.js";
import { jobLink, nodeMark } from "../parts/states.js";
import { sameAs } from "../parts/copy.js";
import { bar } from "../parts/tables.js";

/** The stream tells of the first 200 jobs; so many more that hold something are asked for. */
const MOST_JOBS = 2000;
const PAGE = 200;

export const keyOf = () => "/cluster";

export function open() {
  let hovered = "";
  const others = new Resource(async (signal) => {
    const found = new Map();
    for (let offset = 0; offset < MOST_JOBS; offset += PAGE) {
      const query = { state: ["starting", "running", "resizing", "suspended"], offset, limit: PAGE };
      const told = await get("/jobs", query, signal);
      for (const job of told.items) found.set(job.id, job);
      if (offset + PAGE >= told.total) break;
    }
    return found;
  });
  const again = seldom(10000, () => others.reload());
  // Jobs that the stream has not told of are asked for, if there are any.
  const stop = listen(() => unknown(others.value) && again());
  if (!cluster.known || cluster.more) others.reload();
  const hover = (job) => {
    if (job === hovered) return;
    hovered = job;
    redraw();
  };
  return {
    title: () => "Cluster",
    view() {
      if (!cluster.known)
        return html`<h1>Cluster</h1>
          ${skeleton(10)}`;
      const look = {
        mode: Object.keys(COLOURS).includes(place.query.get("by") ?? "") ? place.query.get("by") : "queue",
        jobs: others.value ? new Map([...others.value, ...cluster.jobs]) : cluster.jobs,
        queues: [...cluster.queues.keys()].sort(),
        one: place.query.get("job") || hovered,
        hover,
      };
      return page(look);
    },
    close() {
      stop();
      again.stop();
      others.close();
    },
  };
}

function unknown(known) {
  for (const node of cluster.nodes.values())
    for (const device of node.devices)
      for (const { job } of device.jobs) if (job && !cluster.jobs.has(job) && !known?.has(job)) return true;
  return false;
}

function page(look) {
  const all = [...cluster.nodes.values()].sort((a, b) => a.id.localeCompare(b.id, "en", { numeric: true }));
  const nodes = all.filter(wanted);
  const table = place.query.get("view") === "table";
  return html`<div class="page-head">
      <h1>Cluster</h1>
      ${sameAs({ cli: "roost nodes", api: `curl ${location.origin}/api/v1/nodes -H "Authorization: Bearer $TOKEN"` })}
    </div>
    ${figures(all)} ${all.length ? tools(look, table, all) : nothing} ${stale()}
    ${
      !all.length
        ? empty(
            "No node has joined yet",
            html`<p>
              On this machine <code>roost up</code> offers its own GPUs; on Kubernetes the operator takes in nodes by
              itself.
            </p>`,
          )
        : !nodes.length
          ? empty("No node matches", html`<a class="button" href="/cluster">Show all</a>`)
          : table
            ? nodeTable(nodes)
            : html`<section class="card" aria-label="Map">${legend(look)}${gpuMap(nodes, look)}</section>`
    }`;
}

function stale() {
  if (link.what === "live" || !link.heard) return nothing;
  return html`<p class="banner" role="status">This is the cluster as it was at ${clock(link.heard / 1000)}.</p>`;
}

function figures(nodes) {
  let gpus = 0;
  let free = 0;
  let failed = 0;
  let whole = 0;
  let most = 0;
  for (const node of nodes) {
    gpus += node.gpus;
    failed += node.gpus_failed;
    if (isOut(node)) continue;
    free += node.gpus_free;
    const here = wholeFree(node);
    whole += here;
    most = Math.max(most, here);
  }
  const out = nodes.filter(isOut).length;
  const { counts } = cluster;
  return html`<ul class="tiles figures" aria-label="In figures">
    ${figure("GPUs free", `${amount(free)}`, `of ${amount(gpus)}`)}
    ${figure("Whole GPUs free", amount(whole), `${most} on one node`)}
    ${figure("Nodes", amount(nodes.length), out ? `${out} out of service` : "all in service", out)}
    ${figure("GPUs failed", amount(failed), "", failed)} ${figure("Jobs running", amount(counts.running ?? 0), "")}
    ${figure("Jobs waiting", amount(counts.queued ?? 0), "")}
  </ul>`;
}

function figure(label, value, more, bad = 0) {
  return html`<li class="figure">
    <span class="muted">${label}</span><span class="tile-value ${bad ? "bad" : ""}">${value}</span
    ><span class="hint">${more}</span>
  </li>`;
}

const wholeFree = (node) => node.devices.filter((device) => device.healthy && !device.jobs.length).length;

/** The filters of the address. */
function wanted(node) {
  const { query } = place;
  const words = (query.get("q") ?? "").toLowerCase();
  if (words && !`${node.id} ${node.kind} ${node.state}`.toLowerCase().includes(words)) return false;
  if (query.get("kind") && node.kind !== query.get("kind")) return false;
  if (query.get("only") === "trouble") return isOut(node) || node.devices.some(gpuFailed);
  if (query.get("only") === "idle") return !isOut(node) && wholeFree(node) === node.devices.length;
  const free = Number(query.get("free") ?? 0);
  return !free || (!isOut(node) && wholeFree(node) >= free);
}

function tools(look, table, all) {
  const { query } = place;
  const set = (name) => (event) => setQuery({ [name]: event.target.value }, { replace: true });
  const kinds = [...new Set(all.map((node) => node.kind))].filter(Boolean).sort();
  const only = query.get("only") ?? "";
  const chip = (name, word) =>
    html`<button
      type="button"
      class="chip"
      aria-pressed=${only === name}
      @click=${() => setQuery({ only: only === name ? "" : name })}
    >
      ${word}
    </button>`;
  return html`<search class="filters" aria-label="What is shown">
    <input
      type="search"
      data-filter
      placeholder="Node, kind, state"
      aria-label="Words in node, kind or state"
      .value=${query.get("q") ?? ""}
      @input=${set("q")}
    />
    ${
      kinds.length > 1
        ? html`<select aria-label="Kind of GPU" @change=${set("kind")}>
            <option value="">all kinds</option>
            ${kinds.map((kind) => html`<option value=${kind} ?selected=${kind === query.get("kind")}>${plain(kind)}</option>`)}
          </select>`
        : nothing
    }
    ${chip("trouble", "with trouble")} ${chip("idle", "idle")}
    <label class="inline"
      >Whole GPUs free at least
      <input class="narrow" type="number" min="0" max="64" .value=${query.get("free") ?? ""} @change=${set("free")}
    /></label>
    ${
      table
        ? nothing
        : html`<label class="inline"
              >Colour by
              <select @change=${(event) => setQuery({ by: event.target.value === "queue" ? "" : event.target.value })}>
                ${Object.entries(COLOURS).map(([name, word]) => html`<option value=${name} ?selected=${name === look.mode}>${word}</option>`)}
              </select></label
            >
            ${jobPicker(look)}`
    }
    <button type="button" class="chip" aria-pressed=${table} @click=${() => setQuery({ view: table ? "" : "table" })}>
      As a table
    </button>
  </search>`;
}

function jobPicker(look) {
  const chosen = place.query.get("job") ?? "";
  const held = [...look.jobs.values()].filter((job) => job.placement.length).slice(0, 500);
  if (!held.length && !chosen) return nothing;
  return html`<label class="inline"
    >Only the job
    <select @change=${(event) => setQuery({ job: event.target.value })}>
      <option value="">all</option>
      ${held.map((job) => html`<option value=${job.id} ?selected=${job.id === chosen}>${plain(job.id)}</option>`)}
    </select></label
  >`;
}

function nodeTable(nodes) {
  return html`<section class="card flush" aria-label="Nodes">
    <div class="scroll" tabindex="0" role="region" aria-label="Nodes as a table">
      <table>
        <thead>
          <tr>
            <th scope="col">Node</th>
            <th scope="col">State</th>
            <th scope="col">Kind</th>
            <th scope="col" class="number">GPUs free</th>
            <th scope="col" class="number">Failed</th>
            <th scope="col">Use</th>
            <th scope="col" class="number">Memory of a GPU</th>
            <th scope="col">Jobs</th>
          </tr>
        </thead>
        <tbody>
          ${nodes.map(
            (node) =>
              html`<tr>
                <th scope="row"><a href="/nodes/${encodeURIComponent(node.id)}" data-row>${plain(node.id)}</a></th>
                <td>${nodeMark(node.state)}</td>
                <td>${plain(node.kind || "–")}</td>
                <td class="number">${amount(node.gpus_free)} of ${amount(node.gpus)}</td>
                <td class="number">${node.gpus_failed || "–"}</td>
                <td>${bar(meanUse(node), "use")}</td>
                <td class="number">${node.gpu_memory_mib ? mebibytes(node.gpu_memory_mib) : "–"}</td>
                <td>${jobsOn(node)}</td>
              </tr>`,
          )}
        </tbody>
      </table>
    </div>
  </section>`;
}

export function meanUse(node) {
  const known = node.devices.map((device) => device.use).filter((use) => use !== null && use !== undefined);
  return known.length ? known.reduce((sum, use) => sum + use, 0) / known.length : null;
}

export function jobsOn(node) {
  const held = new Map();
  for (const device of node.devices)
    for (const { job, share } of device.jobs) held.set(job, (held.get(job) ?? 0) + share);
  if (!held.size) return "–";
  const each = [...held]
    .slice(0, 4)
    .map(
      ([job, share]) =>
        html`${job ? jobLink(job) : "another job"}
          <span class="muted">${share < 1 ? percent(share) : plural(share, "GPU")}</span> `,
    );
  return held.size > 4 ? html`${each} and ${held.size - 4} more` : each;
}
