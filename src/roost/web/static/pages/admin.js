// For administrators: users, tokens, who did what, and how Roost itself is.

import { html, nothing } from "../vendor/lit-html.js";
import { address, get, part, patch, post, remove } from "../core/api.js";
import { Resource } from "../core/resource.js";
import { redraw } from "../core/redraw.js";
import { place, setQuery } from "../core/router.js";
import { who } from "../core/session.js";
import { sameAs } from "../parts/copy.js";
import { ask, openDialog } from "../parts/dialog.js";
import { absolute, amount, bytes, clock, decimal, duration, plain } from "../parts/format.js";
import { icon } from "../parts/icons.js";
import { notify, notifyFault } from "../parts/notices.js";
import { empty, shown } from "../parts/shown.js";
import { tabBar } from "../parts/tabs.js";
import { facts } from "../parts/tables.js";
import { makeToken, tokenTable } from "./account.js";

const TABS = {
  health: ["Health", healthTab],
  users: ["Users", usersTab],
  tokens: ["Tokens", tokensTab],
  audit: ["Audit", auditTab],
};
const EVERY_MS = 5000;

export const keyOf = () => "/admin";

export function open() {
  let tab = null;
  let name = "";
  const showTab = () => {
    const wanted = place.query.get("tab") ?? "health";
    const next = wanted in TABS ? wanted : "health";
    if (next === name) {
      tab.moved?.();
      return;
    }
    tab?.close();
    name = next;
    tab = TABS[name][1]();
  };
  showTab();
  return {
    title: () => "Admin",
    moved: showTab,
    view: () =>
      html`<h1>Admin</h1>
        ${tabBar(TABS, name, "Administration")}
        <div role="tabpanel" id="tab-panel" aria-labelledby="tab-${name}">${tab.view()}</div>`,
    close: () => tab.close(),
  };
}

/** The health of Roost itself. */
function healthTab() {
  const server = new Resource((signal) => get("/server", {}, signal));
  const timer = setInterval(() => document.hidden || server.reload(), EVERY_MS);
  server.reload();
  return {
    view: () => shown(server, healthView, { lines: 8 }),
    close() {
      clearInterval(timer);
      server.close();
    },
  };
}

function healthView(told) {
  const troubles = [told.why, told.policy_fails, told.clock].filter(Boolean);
  return html`<section class="card ${told.ok && !troubles.length ? "" : "attention"}" aria-label="Health">
      <p class="state ${told.ok ? "node-up" : "node-lost"} plan-state">
        ${icon(told.ok ? "succeeded" : "failed")}${told.ok ? "Roost works" : "Roost takes no new work"}
      </p>
      ${troubles.map((text) => html`<p class="note">${icon("warning")} ${plain(text)}</p>`)}
      ${sameAs({ cli: "roost top", api: `curl ${location.origin}/api/v1/server -H "Authorization: Bearer $TOKEN"` })}
    </section>
    <div class="columns">
      ${figures("The server", [
        ["Version", told.version],
        ["Up for", duration(told.up_s)],
        ["Process", told.pid],
        ["Memory", bytes(told.rss_bytes)],
        ["CPU time", duration(told.cpu_s)],
        ["File descriptors", `${amount(told.fds)}${told.fds_most ? ` of ${amount(told.fds_most)}` : ""}`],
        ["Requests", amount(told.requests)],
      ])}
      ${figures("The scheduler", [
        ["Policy", told.policy],
        ["Placer", told.placer],
        ["Decisions", amount(told.decisions?.count)],
        ["Mean decision", told.decisions?.mean_s === null ? null : `${decimal(told.decisions.mean_s * 1000)} ms`],
        [
          "Slowest decision",
          told.decisions?.slowest_s === null ? null : `${decimal(told.decisions.slowest_s * 1000)} ms`,
        ],
        ["Jobs not over", amount(told.jobs_open)],
      ])}
      ${figures("The store", [
        ["Kind", told.store],
        ["Size", bytes(told.store_bytes)],
        ["Free on the disk", bytes(told.disk_free_bytes)],
        ["Journal", amount(told.journal_seq)],
        ["Failed writes", amount(told.append_errors)],
      ])}
      ${figures("Live streams", [
        ["Open", amount(told.streams)],
        ["Viewers", amount(told.viewers)],
        ["Ticks", amount(told.ticks)],
        ["Encoded", amount(told.encoded)],
      ])}
    </div>`;
}

const figures = (title, rows) =>
  html`<section class="card">
    <h2>${title}</h2>
    ${facts(rows)}
  </section>`;

function usersTab() {
  const users = new Resource((signal) => get("/users", {}, signal));
  users.reload();
  return {
    view: () =>
      html`<section class="card flush" aria-labelledby="users-h">
        <div class="card-head pad">
          <h2 id="users-h">Users</h2>
          <button type="button" @click=${() => addUser(users)}>Add a user</button>
        </div>
        ${shown(users, ({ items }) => userTable(items, users))}
      </section>`,
    close: () => users.close(),
  };
}

function userTable(items, users) {
  return html`<div class="scroll" tabindex="0" role="region" aria-label="Users">
    <table>
      <thead>
        <tr>
          <th scope="col">Name</th>
          <th scope="col">Role</th>
          <th scope="col">Unix account</th>
          <th scope="col">State</th>
          <th scope="col" class="number">Jobs at most</th>
          <th scope="col" class="number">Disk at most</th>
          <th scope="col"><span class="hidden">Change</span></th>
        </tr>
      </thead>
      <tbody>
        ${items.map(
          (user) =>
            html`<tr>
              <th scope="row"><a href="/jobs?user=${encodeURIComponent(user.name)}">${plain(user.name)}</a></th>
              <td>
                <select
                  aria-label="Role of ${plain(user.name)}"
                  @change=${(event) => change(user, { role: event.target.value }, users)}
                >
                  ${["admin", "user", "viewer"].map((role) => html`<option ?selected=${role === user.role}>${role}</option>`)}
                </select>
              </td>
              <td>${plain(user.unix || "–")}</td>
              <td>${user.active ? "active" : html`<span class="bad">switched off</span>`}</td>
              <td class="number">
                ${user.jobs === null ? html`<span class="muted">as all</span>` : amount(user.jobs)}
              </td>
              <td class="number">
                ${user.disk_bytes === null ? html`<span class="muted">as all</span>` : bytes(user.disk_bytes)}
              </td>
              <td>
                <div class="buttons">
                  <a class="button" href=${address("/admin", { tab: "tokens", user: user.name })}>Tokens</a> ${
                    user.name === who()?.user
                      ? nothing
                      : html`<button type="button" class="danger" @click=${() => switchUser(user, users)}>
                            ${user.active ? "Switch off" : "Switch on"}
                          </button>
                          <button type="button" class="danger" @click=${() => dropUser(user, users)}>Delete</button>`
                  }
                </div>
              </td>
            </tr>`,
        )}
      </tbody>
    </table>
  </div>`;
}

async function change(user, what, users) {
  try {
    await patch(`/users/${part(user.name)}`, what);
    notify("Saved");
  } catch (error) {
    notifyFault(error);
  }
  users.reload();
}

async function switchUser(user, users) {
  const body = html`<p>
    ${user.active ? "All tokens and sessions of this user stop working, and jobs that are not over are cancelled." : "Tokens that were not revoked work again."}
  </p>`;
  if (
    await ask({
      title: `Switch ${user.active ? "off" : "on"}: ${plain(user.name)}`,
      action: user.active ? "Switch off" : "Switch on",
      danger: user.active,
      body,
    })
  )
    await change(user, { active: !user.active }, users);
}

async function dropUser(user, users) {
  const yes = await ask({
    title: `Delete ${plain(user.name)}`,
    action: "Delete",
    danger: true,
    body: html`<p>The user and its tokens are forgotten. Jobs that are over stay.</p>`,
  });
  if (!yes) return;
  try {
    await remove(`/users/${part(user.name)}`);
    notify("Deleted");
  } catch (error) {
    notifyFault(error);
  }
  users.reload();
}

async function addUser(users) {
  const found = await openDialog("Add a user", (close) => {
    const submit = (event) => {
      event.preventDefault();
      close(Object.fromEntries(new FormData(event.target)));
    };
    return html`<form @submit=${submit}>
      <h2>Add a user</h2>
      <label class="field">Name <input name="name" required autocomplete="off" /></label>
      <label class="field"
        >Role
        <select name="role">
          <option>user</option>
          <option>viewer</option>
          <option>admin</option>
        </select></label
      >
      <label class="field"
        >Unix account <input name="unix" autocomplete="off" /><span class="hint"
          >Under which its jobs run, where the server runs as root</span
        ></label
      >
      <div class="dialog-buttons">
        <button type="button" @click=${() => close(null)}>Back</button
        ><button type="submit" class="primary">Add</button>
      </div>
    </form>`;
  });
  if (!found) return;
  try {
    await post("/users", found);
    notify("Added; now make a token for this user");
    users.reload();
  } catch (error) {
    notifyFault(error);
  }
}

/** Tokens and sessions of one user: the chosen one. */
function tokensTab() {
  const owner = () => place.query.get("user") ?? who()?.user ?? "";
  const users = new Resource((signal) => get("/users", {}, signal));
  const tokens = new Resource((signal) => get("/tokens", { user: owner() }, signal));
  users.reload();
  tokens.reload();
  return {
    moved: () => tokens.reload(),
    view: () =>
      html`<search class="filters" aria-label="Whose">
          <label class="inline"
            >Of the user
            <select @change=${(event) => setQuery({ user: event.target.value })}>
              ${(users.value?.items ?? []).map((one) => html`<option ?selected=${one.name === owner()}>${plain(one.name)}</option>`)}
            </select></label
          >
          <button type="button" @click=${() => makeToken(tokens, owner())}>Make a token</button>
        </search>
        <section class="card flush" aria-label="Tokens and sessions">
          ${shown(tokens, ({ items }) => tokenTable(items, tokens))}
        </section>`,
    close() {
      users.close();
      tokens.close();
    },
  };
}

function auditTab() {
  const question = () => ({
    actor: place.query.get("actor") ?? "",
    kind: place.query.get("kind") ?? "",
    q: place.query.get("q") ?? "",
    limit: 100,
  });
  const audit = new Resource((signal) => get("/audit", question(), signal));
  audit.reload();
  const more = async () => {
    try {
      const told = await get("/audit", { ...question(), before: audit.value.next });
      audit.value = { items: [...audit.value.items, ...told.items], next: told.next };
      redraw();
    } catch (error) {
      notifyFault(error);
    }
  };
  return {
    moved: () => audit.reload(),
    view: () =>
      html`<search class="filters" aria-label="Filters">
          <input
            type="search"
            data-filter
            placeholder="Words"
            aria-label="Words"
            .value=${place.query.get("q") ?? ""}
            @change=${(event) => setQuery({ q: event.target.value })}
          />
          <input
            placeholder="By whom"
            aria-label="By whom"
            .value=${place.query.get("actor") ?? ""}
            @change=${(event) => setQuery({ actor: event.target.value })}
          />
          <input
            placeholder="What kind"
            aria-label="What kind"
            .value=${place.query.get("kind") ?? ""}
            @change=${(event) => setQuery({ kind: event.target.value })}
          />
        </search>
        ${shown(audit, (told) => auditView(told, more), { lines: 10 })}`,
    close: () => audit.close(),
  };
}

function auditView({ items, next }, more) {
  if (!items.length) return empty("Nothing of that kind happened");
  const thing = (event) =>
    event.job
      ? html`<a href="/jobs/${encodeURIComponent(event.job)}">${plain(event.job)}</a>`
      : event.node
        ? html`<a href="/nodes/${encodeURIComponent(event.node)}">${plain(event.node)}</a>`
        : plain(event.user);
  return html`<section class="card flush" aria-label="What was done">
    <div class="scroll" tabindex="0" role="region" aria-label="Audit">
      <table>
        <thead>
          <tr>
            <th scope="col">When</th>
            <th scope="col">By</th>
            <th scope="col">Kind</th>
            <th scope="col">To</th>
            <th scope="col">In words</th>
          </tr>
        </thead>
        <tbody>
          ${items.map(
            (event) =>
              html`<tr>
                <td><time title=${absolute(event.time)}>${clock(event.time)}</time></td>
                <td>${plain(event.actor)}</td>
                <td>${plain(event.kind)}</td>
                <td>${thing(event)}</td>
                <td>${plain(event.text)}</td>
              </tr>`,
          )}
        </tbody>
      </table>
    </div>
    ${next === null ? nothing : html`<p class="pad"><button type="button" @click=${more}>Older ones</button></p>`}
  </section>`;
}
