// Everything that a page shows or does, as a line to type and as a call of the API.

import { html } from "../vendor/lit-html.js";
import { icon } from "./icons.js";
import { notify } from "./notices.js";

/** Put a text on the clipboard; also without TLS, where browsers give no clipboard. */
export async function copy(text) {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    const area = document.createElement("textarea");
    area.value = text;
    area.className = "hidden";
    document.body.append(area);
    area.select();
    document.execCommand("copy");
    area.remove();
  }
  notify("Copied");
}

/** A word for the shell, in quotes where it needs them. */
export function quoted(word) {
  return /^[A-Za-z0-9_@%+=:,./-]+$/.test(word) ? word : `'${String(word).replaceAll("'", "'\\''")}'`;
}

export function copyButton(text, label = "Copy") {
  return html`<button type="button" class="plain copy" title=${label} aria-label=${label} @click=${() => copy(text)}>
    ${icon("copy")}
  </button>`;
}

/** How to do the same without this page. */
export function sameAs({ cli, api }) {
  const line = (text) =>
    html`<div class="same-line"><code tabindex="0">${text}</code>${copyButton(text, `Copy: ${text}`)}</div>`;
  return html`<details class="same">
    <summary>As a command</summary>
    <div class="same-lines">${cli ? line(cli) : ""}${api ? line(api) : ""}</div>
  </details>`;
}
