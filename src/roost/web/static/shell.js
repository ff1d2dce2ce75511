// The frame of every page: the top bar with the live dot, the page itself, and messages.

import { html, nothing } from "./vendor/lit-html.js";
import { place } from "./core/router.js";
import { may, who } from "./core/session.js";
import { cluster, link } from "./core/store.js";
import { PLACES } from "./core/keys.js";
import { clock } from "./parts/format.js";
import { bird, icon } from "./parts/icons.js";
import { noticesView } from "./parts/notices.js";
import { openDialog } from "./parts/dialog.js";
import { switchTheme, themeWord } from "./core/theme.js";

const LINKS = [
  ["/cluster", "Cluster", "cluster:read"],
  ["/jobs", "Jobs", "jobs:read"],
  ["/queues", "Queues", "cluster:read"],
  ["/submit", "Submit", "jobs:write"],
  ["/templates", "Templates", "jobs:read"],
  ["/usage", "Usage", "jobs:read"],
  ["/lab", "Lab", "jobs:read"],
  ["/alerts", "Alerts", "jobs:read"],
  ["/admin", "Admin", "accounts:read"],
];

/** The digest of the files that this page is of. */
const OWN = /\/assets\/([0-9a-f]{16})\//.exec(import.meta.url)?.[1] ?? "";

export function shell(content) {
  return html`<a class="skip" href="#main">Skip to the page</a>
    ${who() ? header() : nothing} ${upgraded()}
    <main id="main" class="wrap" tabindex="-1">${content}</main>
    ${noticesView()}`;
}

function header() {
  return html`<header class="top">
    <div class="wrap top-row">
      <a class="brand" href="/" aria-label="Roost, home">${bird}<span>Roost</span></a>
      <nav class="menu" aria-label="Pages">
        ${LINKS.filter(([, , need]) => may(need)).map(
          ([path, word]) =>
            html`<a href=${path} aria-current=${within(path) ? "page" : nothing}
              >${word}${path === "/alerts" && cluster.alerts.size ? html` <span class="badge">${cluster.alerts.size}<span class="hidden"> firing</span></span>` : nothing}</a
            >`,
        )}
      </nav>
      ${liveDot()}
      <button type="button" class="icon-button" aria-label=${themeWord()} title=${themeWord()} @click=${switchTheme}>
        ${icon("theme")}
      </button>
      <a class="me" href="/account" aria-current=${within("/account") ? "page" : nothing}
        ><span class="hidden">Your account: </span>${who().user}</a
      >
    </div>
  </header>`;
}

function within(path) {
  const own = path === "/cluster" ? ["/cluster", "/nodes"] : [path];
  return own.some((start) => place.path === start || place.path.startsWith(`${start}/`));
}

function liveDot() {
  const words = {
    live: "live",
    connecting: "connecting",
    retrying: link.heard ? `retrying, data from ${clock(link.heard / 1000)}` : "retrying",
    out: "logged out",
  };
  const why = link.why ? `: ${link.why}` : "";
  return html`<span class="live live-${link.what}" role="status" title=${words[link.what] + why}
    ><span class="dot" aria-hidden="true"></span><span class="live-word">${words[link.what]}</span></span
  >`;
}

function upgraded() {
  if (!who() || !OWN || !cluster.assets || cluster.assets === OWN) return nothing;
  return html`<div class="banner wrap" role="status">
    <div>The server is of another version now (${cluster.version}). This page is still of the old one.</div>
    <button type="button" class="primary" @click=${() => location.reload()}>Reload the page</button>
  </div>`;
}

const KEYS = [
  ["/", "go to the filter"],
  ["j, k, Enter", "next row, row before, open it"],
  ["arrows", "move on the map"],
  ["Esc", "leave a field, close a dialog"],
  ["?", "this list"],
];

/** Say which keys there are. */
export function showKeys() {
  return openDialog(
    "Keys",
    (close) =>
      html`<h2>Keys</h2>
        <dl class="keys">
          ${PLACES.map(
            ([letter, , word]) =>
              html`<div>
                <dt><kbd>g</kbd> <kbd>${letter}</kbd></dt>
                <dd>${word}</dd>
              </div>`,
          )}
          ${KEYS.map(
            ([key, what]) =>
              html`<div>
                <dt><kbd>${key}</kbd></dt>
                <dd>${what}</dd>
              </div>`,
          )}
        </dl>
        <div class="dialog-buttons">
          <button type="button" class="primary" @click=${() => close(null)}>Close</button>
        </div>`,
  );
}
