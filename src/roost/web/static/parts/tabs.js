// Tabs of a page, kept in its address; arrow keys move between them.

import { html } from "../vendor/lit-html.js";
import { setQuery } from "../core/router.js";

/** A bar of tabs: `tabs` maps names to [word, ...]; the first is the usual one. */
export function tabBar(tabs, current, label) {
  const first = Object.keys(tabs)[0];
  return html`<div class="tabs" role="tablist" aria-label=${label} @keydown=${move}>
    ${Object.entries(tabs).map(
      ([name, [word]]) =>
        html`<button
          type="button"
          role="tab"
          id="tab-${name}"
          aria-controls="tab-panel"
          aria-selected=${name === current}
          tabindex=${name === current ? 0 : -1}
          @click=${() => setQuery({ tab: name === first ? "" : name })}
        >
          ${word}
        </button>`,
    )}
  </div>`;
}

function move(event) {
  const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
  if (!step) return;
  const each = [...event.currentTarget.querySelectorAll("[role=tab]")];
  const next = each[(each.indexOf(document.activeElement) + step + each.length) % each.length];
  next.focus();
  next.click();
}
