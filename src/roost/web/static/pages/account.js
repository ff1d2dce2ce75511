// The own account: who one is here, tokens, and the end of sessions.

import { html, nothing } from "../vendor/lit-html.js";
import { get, part, post, remove } from "../core/api.js";
import { Resource } from "../core/resource.js";
import { go } from "../core/router.js";
import { logOut, who } from "../core/session.js";
import { copyButton } from "../parts/copy.js";
import { ask, openDialog } from "../parts/dialog.js";
import { absolute, amount, bytes, plain } from "../parts/format.js";
import { notify, notifyFault } from "../parts/notices.js";
import { empty, shown } from "../parts/shown.js";
import { facts } from "../parts/tables.js";
import { since } from "../parts/times.js";

export function open() {
  const caller = new Resource((signal) => get("/whoami", {}, signal));
  const tokens = new Resource((signal) => get("/tokens", {}, signal));
  caller.reload();
  tokens.reload();

  const leave = async (everywhere) => {
    try {
      await logOut(everywhere);
      go("/login");
    } catch (error) {
      notifyFault(error);
    }
  };
  return {
    title: () => "Your account",
    view: () =>
      html`<div class="page-head">
          <h1>${plain(who()?.user ?? "")}</h1>
          <div class="buttons">
            <button type="button" @click=${() => leave(false)}>Log out</button>
            <button type="button" @click=${() => leave(true)}>Log out everywhere</button>
          </div>
        </div>
        <section class="card" aria-label="You">${shown(caller, callerView)}</section>
        <section class="card" aria-labelledby="tokens-h">
          <div class="card-head">
            <h2 id="tokens-h">Tokens and sessions</h2>
            <button type="button" @click=${() => makeToken(tokens)}>Make a token</button>
          </div>
          ${shown(tokens, ({ items }) => tokenTable(items, tokens))}
        </section>`,
    close() {
      caller.close();
      tokens.close();
    },
  };
}

function callerView({ role, unix, bounds, use, mounts }) {
  const of = (have, most, write) => `${write(have)}${most === null ? "" : ` of ${write(most)}`}`;
  return facts([
    ["Role", role],
    ["Unix account", unix],
    ["Jobs not over", bounds && of(use.jobs, bounds.jobs, amount)],
    ["Disk", bounds && of(use.disk_bytes, bounds.disk_bytes, bytes)],
    ["Tokens", bounds && of(use.tokens, bounds.tokens, amount)],
    ["Mounts", mounts.map((mount) => `${plain(mount.name)}${mount.readonly ? " (read-only)" : ""}`).join(", ")],
  ]);
}

/** Ask for a label, make the token, and show it this once. */
export async function makeToken(tokens, user) {
  const label = await ask({
    title: user ? `Make a token for ${plain(user)}` : "Make a token",
    action: "Make it",
    field: { label: "What it is for", hint: "Such as: laptop" },
  });
  if (label === null) return;
  try {
    const made = await post("/tokens", { label, ...(user ? { user } : {}) });
    tokens.reload();
    await openDialog(
      "A new token",
      (close) =>
        html`<h2>A new token</h2>
          <p>It is shown this once. Keep it like a password.</p>
          <div class="same-line">
            <code tabindex="0">${made.secret}</code>${copyButton(made.secret, "Copy the token")}
          </div>
          <div class="dialog-buttons">
            <button type="button" class="primary" @click=${() => close(true)}>I have it</button>
          </div>`,
    );
  } catch (error) {
    notifyFault(error);
  }
}

export function tokenTable(items, tokens) {
  if (!items.length) return empty("No tokens");
  return html`<div class="scroll" tabindex="0" role="region" aria-label="Tokens">
    <table>
      <thead>
        <tr>
          <th scope="col">Label</th>
          <th scope="col">Kind</th>
          <th scope="col">Made</th>
          <th scope="col">Last used</th>
          <th scope="col">Works until</th>
          <th scope="col"><span class="hidden">Revoke</span></th>
        </tr>
      </thead>
      <tbody>
        ${items.map(
          (one) =>
            html`<tr>
              <td>${plain(one.label || one.id)}${one.id === who()?.token ? " (this one)" : ""}</td>
              <td>${one.kind}</td>
              <td>${since(one.created_at)}</td>
              <td>${one.last_used_at ? since(one.last_used_at) : "never"}</td>
              <td>
                ${one.revoked_at ? html`<span class="muted">revoked ${since(one.revoked_at)}</span>` : one.expires_at ? absolute(one.expires_at) : "it is revoked"}
              </td>
              <td>
                ${one.revoked_at ? nothing : html`<button type="button" class="danger" @click=${() => revoke(one, tokens)}>Revoke</button>`}
              </td>
            </tr>`,
        )}
      </tbody>
    </table>
  </div>`;
}

async function revoke(token, tokens) {
  const yes = await ask({
    title: "Revoke this token",
    action: "Revoke",
    danger: true,
    body: html`<p>
      ${plain(token.label || token.id)} of ${plain(token.user)} stops working at once, and so do all that were made with
      it.
    </p>`,
  });
  if (!yes) return;
  try {
    await remove(`/tokens/${part(token.id)}`);
    notify("Revoked");
    tokens.reload();
  } catch (error) {
    notifyFault(error);
  }
}
