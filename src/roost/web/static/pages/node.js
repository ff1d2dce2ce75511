// One node: its GPUs and what is on them, why it is out of service, and what can be done about it.

import { html, nothing } from "../vendor/lit-html.js";
import { get, part, post, put, remove } from "../core/api.js";
import { Resource, seldom } from "../core/resource.js";
import { may } from "../core/session.js";
import { cluster, listen } from "../core/store.js";
import { quoted, sameAs } from "../parts/copy.js";
import { ask } from "../parts/dialog.js";
import { absolute, amount, mebibytes, percent, plain } from "../parts/format.js";
import { notify, notifyFault } from "../parts/notices.js";
import { jobTable } from "../parts/job-table.js";
import { empty, fault, skeleton } from "../parts/shown.js";
import { jobLink, nodeMark } from "../parts/states.js";
import { bar, facts } from "../parts/tables.js";
import { since } from "../parts/times.js";
import { eventTable } from "./job-history.js";

export const keyOf = ({ path }) => path;

export function open({ names }) {
  const id = names.node;
  const more = new Resource((signal) => get(`/nodes/${part(id)}`, {}, signal));
  const again = seldom(2000, () => more.reload());
  let seen = null;
  const stop = listen(() => {
    const node = cluster.nodes.get(id);
    if (node !== seen) again();
    seen = node;
  });
  more.reload();
  return {
    title: () => id,
    view() {
      const node = cluster.nodes.get(id) ?? more.value?.node;
      if (!node) {
        if (!cluster.known)
          return html`<h1>${plain(id)}</h1>
            ${skeleton(6)}`;
        return html`<h1>${plain(id)}</h1>
          ${empty("There is no such node", html`<a class="button" href="/cluster">The cluster</a>`)}`;
      }
      return page(node, more);
    },
    close() {
      stop();
      again.stop();
      more.close();
    },
  };
}

function page(node, more) {
  return html`<div class="page-head">
      <div>
        <h1>${plain(node.id)}</h1>
        <p class="sub">
          ${nodeMark(node.state)}
          <span>${plain(node.kind)}</span>
          ${node.runs ? html`<span>${node.runs} runs</span>` : html`<span>nothing runs there</span>`}
        </p>
      </div>
      <div class="buttons">
        ${may("cluster:write") ? actions(node) : nothing}
        ${sameAs({ cli: `roost nodes drain ${quoted(node.id)}`, api: `curl ${location.origin}/api/v1/nodes/${part(node.id)} -H "Authorization: Bearer $TOKEN"` })}
      </div>
    </div>
    ${noticeView(node)}
    <section class="card" aria-label="In figures">
      ${facts([
        ["GPUs free", `${amount(node.gpus_free)} of ${amount(node.gpus)}`],
        ["GPUs failed", node.gpus_failed || null],
        ["Memory of a GPU", node.gpu_memory_mib ? mebibytes(node.gpu_memory_mib) : null],
        ["CPUs", node.cpus ? amount(node.cpus) : null],
        ["Memory", node.memory_mib ? mebibytes(node.memory_mib) : null],
      ])}
    </section>
    <section class="card flush" aria-labelledby="gpus-h">
      <h2 id="gpus-h" class="pad">GPUs</h2>
      ${devices(node)}
    </section>
    ${more.error && !more.value ? fault(more) : nothing}
    ${
      more.value
        ? html`<section class="card flush" aria-labelledby="jobs-h">
              <h2 id="jobs-h" class="pad">Jobs</h2>
              ${more.value.jobs?.length ? jobTable(more.value.jobs, { columns: ["state", "job", "user", "queue", "gpus", "use", "progress"] }) : empty("No jobs of yours are there")}
            </section>
            <section class="card flush" aria-labelledby="events-h">
              <h2 id="events-h" class="pad">Events</h2>
              ${more.value.events?.length ? eventTable(more.value.events) : empty("Nothing happened yet")}
            </section>`
        : nothing
    }`;
}

/** @param {import("../types.js").NodeView} node */
function noticeView(node) {
  const { notice, maintenance } = node;
  return html`${
    notice && node.state !== "up"
      ? html`<div class="banner" role="status">
          <div>
            <strong>${node.state}</strong> since
            ${since(notice.since)}${notice.user ? ` by ${plain(notice.user)}` : ""}${notice.reason ? `: ${plain(notice.reason)}` : ""}
          </div>
        </div>`
      : nothing
  }
  ${maintenance.map(
    (window) =>
      html`<div class="banner" role="status">
        <div>
          <strong>Maintenance</strong> from ${absolute(window.starts_at)} to
          ${absolute(window.ends_at)}${window.reason ? `: ${plain(window.reason)}` : ""}
        </div>
        ${may("cluster:write") ? html`<button type="button" @click=${() => act(() => remove(`/nodes/${part(node.id)}/maintenance/${window.starts_at}`), "The maintenance is called off")}>Call off</button>` : nothing}
      </div>`,
  )}`;
}

async function act(how, done) {
  try {
    await how();
    notify(done);
  } catch (error) {
    notifyFault(error);
  }
}

function actions(node) {
  const path = `/nodes/${part(node.id)}`;
  const out = node.state !== "up" && node.state !== "lost";
  const cordon = async (drain) => {
    const reason = await ask({
      title: `${drain ? "Drain" : "Cordon"} ${plain(node.id)}`,
      action: drain ? "Drain" : "Cordon",
      danger: drain,
      field: { label: "Why", hint: "Everybody can read it" },
      body: html`<p>
        ${drain ? "Nothing new begins there, and what runs there leaves: it goes on elsewhere, or waits." : "Nothing new begins there; what runs there goes on."}
      </p>`,
    });
    if (reason !== null)
      await act(() => put(`${path}/cordon`, { reason, drain }), drain ? "It is being drained" : "It is cordoned");
  };
  return html`${
      out
        ? html`<button
              type="button"
              class="primary"
              @click=${() => act(() => remove(`${path}/cordon`), "It is in service again")}
            >
              Put back into service
            </button>
            ${node.state === "cordoned" ? html`<button type="button" class="danger" @click=${() => cordon(true)}>Drain</button>` : nothing}`
        : html`<button type="button" @click=${() => cordon(false)}>Cordon</button>
            <button type="button" class="danger" @click=${() => cordon(true)}>Drain</button>`
    } <button type="button" @click=${() => planMaintenance(path)}>Plan maintenance</button>`;
}

async function planMaintenance(path) {
  const text = await ask({
    title: "Plan maintenance",
    action: "Plan it",
    field: {
      label: "In how many hours, for how many hours, and why",
      value: "24 2 firmware",
      hint: "Such as: 24 2 firmware",
    },
  });
  if (text === null) return;
  const found = /^\s*([\d.]+)\s+([\d.]+)\s*(.*)$/.exec(text);
  if (!found) {
    notify("Say two numbers of hours, and why", { bad: true });
    return;
  }
  const starts = Math.round(Date.now() / 1000 + Number(found[1]) * 3600);
  const body = { starts_at: starts, ends_at: starts + Math.round(Number(found[2]) * 3600), reason: found[3] };
  await act(() => post(`${path}/maintenance`, body), "The maintenance is planned");
}

/** @param {import("../types.js").NodeView} node */
function devices(node) {
  if (!node.devices.length) return empty("It has no GPUs");
  return html`<div class="scroll" tabindex="0" role="region" aria-label="GPUs">
    <table>
      <thead>
        <tr>
          <th scope="col">GPU</th>
          <th scope="col">Health</th>
          <th scope="col">Use</th>
          <th scope="col">Jobs</th>
          <th scope="col"><span class="hidden">Change</span></th>
        </tr>
      </thead>
      <tbody>
        ${node.devices.map(
          (device) =>
            html`<tr>
              <th scope="row">${device.index}</th>
              <td>
                ${
                  device.healthy
                    ? html`<span class="state node-up">healthy</span>`
                    : html`<span class="state node-lost">out of use</span>
                        <span class="muted"
                          >${plain(device.notice?.reason ?? "")}
                          ${device.notice ? since(device.notice.since) : nothing}</span
                        >`
                }
              </td>
              <td>${bar(device.use, "use")}</td>
              <td>
                ${device.jobs.length ? device.jobs.map(({ job, share }) => html`${job ? jobLink(job) : "another job"}${share < 1 ? ` ${percent(share)}` : ""} `) : html`<span class="muted">free</span>`}
              </td>
              <td class="number">${may("cluster:write") ? switchGpu(node, device) : nothing}</td>
            </tr>`,
        )}
      </tbody>
    </table>
  </div>`;
}

function switchGpu(node, device) {
  const path = `/nodes/${part(node.id)}/gpus/${device.index}`;
  if (!device.healthy)
    return html`<button type="button" @click=${() => act(() => post(`${path}/restore`), "It is used again")}>
      Use again
    </button>`;
  const disable = async () => {
    const reason = await ask({
      title: `Use GPU ${device.index} of ${plain(node.id)} no longer`,
      action: "Take it out of use",
      danger: true,
      field: { label: "Why" },
    });
    if (reason !== null) await act(() => post(`${path}/disable`, { reason }), "It is out of use");
  };
  return html`<button type="button" @click=${disable}>Take out of use</button>`;
}
