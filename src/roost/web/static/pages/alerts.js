// What fires now, what fired, and the rules that say what is worth it.

import { html, nothing } from "../vendor/lit-html.js";
import { get, put } from "../core/api.js";
import { Resource, seldom } from "../core/resource.js";
import { may } from "../core/session.js";
import { cluster, listen } from "../core/store.js";
import { sameAs } from "../parts/copy.js";
import { openDialog } from "../parts/dialog.js";
import { duration, percent, plain, plural } from "../parts/format.js";
import { icon } from "../parts/icons.js";
import { notify, notifyFault } from "../parts/notices.js";
import { empty, shown } from "../parts/shown.js";
import { jobLink } from "../parts/states.js";
import { since } from "../parts/times.js";

export function open() {
  /** @type {Resource<import("../types.js").AlertList>} */
  const list = new Resource((signal) => get("/alerts", {}, signal));
  const again = seldom(2000, () => list.reload());
  let known = cluster.alerts;
  let count = cluster.alerts.size;
  const stop = listen(() => {
    if (known === cluster.alerts && count === cluster.alerts.size) return;
    known = cluster.alerts;
    count = cluster.alerts.size;
    again();
  });
  list.reload();
  return {
    title: () => "Alerts",
    view: () =>
      html`<div class="page-head">
          <h1>Alerts</h1>
          ${sameAs({ cli: "roost alerts", api: `curl ${location.origin}/api/v1/alerts -H "Authorization: Bearer $TOKEN"` })}
        </div>
        ${shown(list, (told) => page(told, list), { lines: 6 })}`,
    close() {
      stop();
      again.stop();
      list.close();
    },
  };
}

/** What a rule does where it does not say so. */
const USUAL = { do: ["tell"], to: ["owner"], severity: "warning", on: true };

function page({ items, ended, rules: given, problem }, list) {
  const rules = given.map((rule) => ({ ...USUAL, ...rule }));
  const last = ended[0]?.ended_at;
  return html`${problem ? html`<p class="banner banner-bad" role="alert">${icon("warning")} ${plain(problem)}</p>` : nothing}
    <section class="card" aria-labelledby="now-h">
      <h2 id="now-h">Firing now</h2>
      ${items.length ? alertList(items) : html`<p class="state node-up">${icon("succeeded")} All quiet${last ? html` since ${since(last)}` : ""}</p>`}
    </section>
    <section class="card" aria-labelledby="rules-h">
      <h2 id="rules-h">Rules</h2>
      ${ruleTable(rules, list)}
    </section>
    <section class="card" aria-labelledby="ended-h">
      <h2 id="ended-h">What fired before</h2>
      ${ended.length ? alertList(ended) : empty("Nothing has fired yet")}
    </section>`;
}

function alertList(items) {
  return html`<ul class="rows">
    ${items.map(
      (alert) =>
        html`<li>
          <span class="state ${alert.severity === "critical" ? "node-lost" : "node-cordoned"}"
            >${icon(alert.severity === "critical" ? "failed" : "warning")}${alert.severity}</span
          >
          <strong>${plain(alert.rule)}</strong> ${about(alert)}
          <span class="text"
            >${plain(alert.text)}${alert.done.length ? html` <span class="muted">Done: ${alert.done.map(plain).join("; ")}</span>` : nothing}</span
          >
          <span
            >${alert.ended_at ? html`${since(alert.ended_at)}, for ${duration(alert.ended_at - alert.fired_at)}` : html`fires since ${since(alert.fired_at)}`}</span
          >
        </li>`,
    )}
  </ul>`;
}

function about({ job, node, queue, user }) {
  if (job) return jobLink(job);
  if (node) return html`<a href="/nodes/${encodeURIComponent(node)}">${plain(node)}</a>`;
  if (queue) return html`<a href="/jobs?queue=${encodeURIComponent(queue)}&state=queued">${plain(queue)}</a>`;
  return plain(user);
}

function ruleTable(rules, list) {
  const edits = may("cluster:write");
  const save = async (changed, done) => {
    try {
      await put("/alerts/rules", { rules: changed });
      notify(done);
      list.reload();
    } catch (error) {
      notifyFault(error);
    }
  };
  const replace = (index, rule) => rules.map((one, at) => (at === index ? rule : one));
  const change = async (index) => {
    const rule = await editRule(rules[index]);
    if (rule) await save(replace(index, rule), `${rule.name} is changed`);
  };
  const add = async () => {
    const rule = await editRule({ ...USUAL, name: "", when: "idle-gpu", lasts: "30m" });
    if (rule) await save([...rules, rule], `${rule.name} is added`);
  };
  return html`<div class="scroll" tabindex="0" role="region" aria-label="Rules">
      <table>
        <thead>
          <tr>
            <th scope="col">Rule</th>
            <th scope="col">Fires when</th>
            <th scope="col">Lasts</th>
            <th scope="col">Does</th>
            <th scope="col">Tells</th>
            <th scope="col">Severity</th>
            <th scope="col"><span class="hidden">Change</span></th>
          </tr>
        </thead>
        <tbody>
          ${rules.map(
            (rule, index) =>
              html`<tr class=${!rule.on ? "muted" : ""}>
                <th scope="row">${plain(rule.name)}</th>
                <td>${plain(rule.when)}${rule.below ? ` below ${percent(rule.below)}` : ""}</td>
                <td>${lasts(rule.lasts)}</td>
                <td>${rule.do.join(", ")}</td>
                <td>${rule.to.map(plain).join(", ")}</td>
                <td>${rule.severity}</td>
                <td>
                  ${
                    edits
                      ? html`<div class="buttons">
                          <button type="button" class="plain" @click=${() => change(index)}>Edit</button>
                          <button
                            type="button"
                            class="plain"
                            @click=${() => save(replace(index, { ...rule, on: !rule.on }), !rule.on ? "It is on" : "It is off")}
                          >
                            ${!rule.on ? "Switch on" : "Switch off"}
                          </button>
                          <button
                            type="button"
                            class="plain"
                            @click=${() =>
                              save(
                                rules.filter((_, at) => at !== index),
                                "It is gone",
                              )}
                          >
                            Delete
                          </button>
                        </div>`
                      : !rule.on
                        ? "off"
                        : nothing
                  }
                </td>
              </tr>`,
          )}
        </tbody>
      </table>
    </div>
    ${edits ? html`<p><button type="button" @click=${add}>Add a rule</button></p>` : nothing}
    <p class="hint">
      ${plural(rules.length, "rule")}; as a file: <code>roost alerts rules &gt; alerts.yaml</code>,
      <code>roost alerts set alerts.yaml</code>
    </p>`;
}

/** A time to last, as seconds or as it was written. */
function lasts(value) {
  if (!value) return "at once";
  return typeof value === "number" ? duration(value) : plain(value);
}

const CONDITIONS = ["idle-gpu", "low-use", "stuck", "node-lost", "gpu-failed", "queue-wait", "disk", "intake"];

async function editRule(rule) {
  const found = await openDialog(rule.name ? `Edit ${rule.name}` : "Add a rule", (close) => {
    const submit = (event) => {
      event.preventDefault();
      const form = new FormData(event.target);
      close({
        name: form.get("name"),
        when: form.get("when"),
        lasts: form.get("lasts"),
        below: form.get("below"),
        do: form.getAll("do"),
        to: form.get("to"),
        severity: form.get("severity"),
      });
    };
    const check = (name, word) =>
      html`<label class="check"
        ><input type="checkbox" name="do" value=${name} .checked=${rule.do.includes(name)} /> ${word}</label
      >`;
    return html`<form @submit=${submit}>
      <h2>${rule.name ? html`Edit ${plain(rule.name)}` : "Add a rule"}</h2>
      <label class="field">Name <input name="name" required .value=${rule.name} autocomplete="off" /></label>
      <label class="field"
        >Fires when
        <select name="when">
          ${CONDITIONS.map((one) => html`<option ?selected=${one === rule.when}>${one}</option>`)}
        </select></label
      >
      <label class="field"
        >Below <input name="below" .value=${String(rule.below ?? "")} autocomplete="off" /><span class="hint"
          >For idle-gpu, low-use and disk: a part, such as 0.1</span
        ></label
      >
      <label class="field"
        >Lasts <input name="lasts" .value=${String(rule.lasts ?? "")} autocomplete="off" /><span class="hint"
          >Such as 30m</span
        ></label
      >
      ${check("tell", "tell somebody")} ${check("suspend", "suspend the job")} ${check("drain", "drain the node")}
      <label class="field"
        >Whom <input name="to" .value=${rule.to.join(", ")} autocomplete="off" /><span class="hint"
          >owner, mail addresses, web hooks; with commas</span
        ></label
      >
      <label class="field"
        >Severity
        <select name="severity">
          ${["warning", "critical"].map((one) => html`<option ?selected=${one === rule.severity}>${one}</option>`)}
        </select></label
      >
      <div class="dialog-buttons">
        <button type="button" @click=${() => close(null)}>Back</button
        ><button type="submit" class="primary">Save</button>
      </div>
    </form>`;
  });
  if (!found) return null;
  const names = found.to
    .split(",")
    .map((name) => name.trim())
    .filter(Boolean);
  const length = found.lasts.trim();
  return {
    ...rule,
    name: found.name.trim(),
    when: found.when,
    below: found.below.trim() === "" ? null : Number(found.below),
    lasts: /^[\d.]+$/.test(length) ? Number(length) : length || 0,
    do: found.do,
    to: names,
    severity: found.severity,
  };
}
