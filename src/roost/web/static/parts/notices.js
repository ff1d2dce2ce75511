// Short messages at the edge of the page, and the one place that tells screen readers of changes.

import { html, nothing } from "../vendor/lit-html.js";
import { redraw } from "../core/redraw.js";
import { plain } from "./format.js";

const SHOWN_MS = 8000;
/** A screen reader is told at most so often. */
const SPOKEN_MS = 5000;

let notices = [];
let spoken = "";
let spokenAt = 0;
let waiting = null;

/** Say something; a fault stays until it is closed. */
export function notify(text, { bad = false, hint = "" } = {}) {
  const notice = { text: plain(text), hint: plain(hint), bad };
  notices = [...notices.slice(-3), notice];
  if (!bad) setTimeout(() => close(notice), SHOWN_MS);
  redraw();
}

/** Say what went wrong, in the server's words. */
export function notifyFault(error) {
  notify(error.message, { bad: true, hint: error.hint });
}

function close(notice) {
  notices = notices.filter((one) => one !== notice);
  redraw();
}

/** Have it read out, politely, and not too often. */
export function announce(text) {
  clearTimeout(waiting);
  waiting = setTimeout(
    () => {
      spoken = text;
      spokenAt = Date.now();
      redraw();
    },
    Math.max(0, spokenAt + SPOKEN_MS - Date.now()),
  );
}

export function noticesView() {
  return html`<div class="notices" role="region" aria-label="Messages">
      ${notices.map(
        (notice) =>
          html`<div class="toast ${notice.bad ? "toast-bad" : ""}" role=${notice.bad ? "alert" : "status"}>
            <div>${notice.text} ${notice.hint ? html`<div class="hint">${notice.hint}</div>` : nothing}</div>
            <button type="button" class="plain" aria-label="Close this message" @click=${() => close(notice)}>×</button>
          </div>`,
      )}
    </div>
    <div class="hidden" aria-live="polite">${spoken}</div>`;
}
