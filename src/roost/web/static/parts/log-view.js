// A log as lines: the newest part first, followed while one is at its end, earlier parts on demand.

import { html, render } from "../vendor/lit-html.js";
import { address, fetched } from "../core/api.js";
import { bytes } from "./format.js";

/** So many bytes are read at once, and so many lines are kept on the page. */
const CHUNK = 64 * 1024;
const MOST_LINES = 5000;
/** A line is cut here: one of megabytes would stop the page. */
const MOST_LETTERS = 4000;
/** So near to the end counts as the end. */
const NEAR_PX = 24;

/** `<log-view .log=${{path, query}}>`; showAt(offset) jumps to a place of the log. */
class LogView extends HTMLElement {
  #log = null;
  #source = null;
  #first = 0;
  #last = 0;
  #rest = "";
  #follows = true;
  #state = "";
  #waiting = [];
  #flushing = false;
  #lines = null;
  #top = 0;

  set log(log) {
    if (this.#log === log) return;
    this.#log = log;
    if (this.isConnected) this.#open();
  }

  connectedCallback() {
    render(
      html`<div
          class="log-lines"
          tabindex="0"
          role="log"
          aria-live="off"
          aria-label="Log"
          @scroll=${() => this.#scrolled()}
        ></div>
        <div class="log-foot"></div>`,
      this,
    );
    this.#lines = this.querySelector(".log-lines");
    if (this.#log) this.#open();
  }

  disconnectedCallback() {
    this.#source?.close();
    this.#source = null;
  }

  /** The newest part, then whatever comes. */
  async #open() {
    this.#source?.close();
    this.#lines.replaceChildren();
    this.#rest = "";
    this.#waiting = [];
    this.#follows = true;
    const log = this.#log;
    try {
      const size = await this.#size();
      if (log !== this.#log) return;
      await this.#load(Math.max(0, size - CHUNK), size);
      if (log !== this.#log) return;
      this.#toEnd();
      this.#listen();
    } catch (error) {
      this.#say(error.message);
    }
  }

  async #size() {
    const answer = await fetched("GET", `${this.#log.path}/logs`, {
      query: { ...this.#log.query, offset: 0, limit: 1 },
    });
    return Number(answer.headers.get("X-Log-Size") ?? 0);
  }

  async #part(offset, limit) {
    const answer = await fetched("GET", `${this.#log.path}/logs`, { query: { ...this.#log.query, offset, limit } });
    return new Uint8Array(await answer.arrayBuffer());
  }

  /** Show the log from one offset to another, and nothing else. */
  async #load(from, to) {
    const content = await this.#part(from, Math.max(1, to - from));
    const start = from === 0 ? 0 : content.indexOf(10) + 1;
    this.#first = from + start;
    this.#last = from + content.length;
    this.#rest = "";
    this.#lines.replaceChildren();
    this.#add(new TextDecoder().decode(content.subarray(start)));
  }

  /** What is before the first line that is shown. */
  async #earlier() {
    const from = Math.max(0, this.#first - CHUNK);
    const content = await this.#part(from, this.#first - from);
    const start = from === 0 ? 0 : content.indexOf(10) + 1;
    const text = new TextDecoder().decode(content.subarray(start, this.#first - from));
    const before = this.#lines.scrollHeight - this.#lines.scrollTop;
    this.#lines.prepend(...text.replace(/\n$/, "").split("\n").map(line));
    this.#lines.scrollTop = this.#lines.scrollHeight - before;
    this.#first = from + start;
    this.#foot();
  }

  /** Jump to a place: what is around it is shown, and following stops until one asks for it. */
  async showAt(offset) {
    this.#source?.close();
    this.#source = null;
    this.#follows = false;
    try {
      await this.#load(Math.max(0, offset - CHUNK / 4), offset + CHUNK);
    } catch (error) {
      this.#say(error.message);
      return;
    }
    let place = this.#first;
    const coder = new TextEncoder();
    for (const row of this.#lines.children) {
      const size = Number(row.dataset.bytes ?? coder.encode(row.textContent).length) + 1;
      if (place + size > offset) {
        row.classList.add("found");
        row.scrollIntoView({ block: "center" });
        break;
      }
      place += size;
    }
    this.#say("");
  }

  #listen() {
    const { path, query } = this.#log;
    const source = (this.#source = new EventSource(
      address(`/api/v1${path}/logs/stream`, { ...query, offset: this.#last }),
    ));
    source.onmessage = (event) => {
      this.#waiting.push(JSON.parse(event.data));
      this.#flush();
    };
    source.addEventListener("attempt", (event) => {
      const { attempt } = JSON.parse(event.data);
      this.#waiting.push({ attempt });
      this.#flush();
    });
    source.addEventListener("end", () => {
      source.close();
      this.#say("The log is complete.");
    });
    source.onopen = () => this.#say("");
    source.onerror = () => this.#say("The connection was lost; it is tried again.");
  }

  /** Once per frame, however many lines came. */
  #flush() {
    if (this.#flushing) return;
    this.#flushing = true;
    requestAnimationFrame(() => {
      this.#flushing = false;
      let text = "";
      for (const piece of this.#waiting) {
        if (typeof piece === "string") text += piece;
        else if (this.#attempt !== undefined && this.#attempt !== piece.attempt)
          text += `\n── attempt ${piece.attempt} ──\n`;
        if (typeof piece !== "string") this.#attempt = piece.attempt;
      }
      this.#waiting = [];
      if (text) this.#add(text);
      if (this.#follows) this.#toEnd();
      this.#foot();
    });
  }

  #attempt = undefined;

  #add(text) {
    const lines = (this.#rest + text).split("\n");
    this.#rest = lines.pop();
    this.#lines.querySelector(".rest")?.remove();
    const fresh = document.createDocumentFragment();
    for (const one of lines.slice(-MOST_LINES)) fresh.append(line(one));
    if (this.#rest) {
      const open = line(this.#rest);
      open.classList.add("rest");
      fresh.append(open);
      if (this.#rest.length > 1 << 20) this.#rest = this.#rest.slice(-MOST_LETTERS);
    }
    this.#lines.append(fresh);
    while (this.#lines.childElementCount > MOST_LINES) {
      const first = this.#lines.firstElementChild;
      this.#first += Number(first.dataset.bytes) + 1;
      first.remove();
    }
  }

  #toEnd() {
    this.#lines.scrollTop = this.#lines.scrollHeight;
  }

  /** Only scrolling up stops following: growth never does. */
  #scrolled() {
    const { scrollHeight, scrollTop, clientHeight } = this.#lines;
    const atEnd = scrollHeight - scrollTop - clientHeight < NEAR_PX;
    const up = scrollTop < this.#top;
    this.#top = scrollTop;
    if (!this.#source || atEnd === this.#follows || (this.#follows && !up)) return;
    this.#follows = atEnd;
    this.#foot();
  }

  #say(state) {
    this.#state = state;
    this.#foot();
  }

  #foot() {
    const foot = /** @type {HTMLElement} */ (this.querySelector(".log-foot"));
    if (!foot) return;
    const follow = () => {
      this.#follows = true;
      if (this.#source) this.#toEnd();
      else this.#open();
      this.#foot();
    };
    render(
      html` ${
          this.#first > 0
            ? html`<button type="button" @click=${() => this.#earlier()}>
                Show what is before (${bytes(this.#first)})
              </button>`
            : html`<span class="muted">from the beginning</span>`
        }
        <span class="muted" role="status">${this.#state}</span>
        ${
          this.#follows && this.#source
            ? html`<span class="muted">following</span>`
            : html`<button type="button" @click=${follow}>Follow the end</button>`
        }`,
      foot,
    );
  }
}

customElements.define("log-view", LogView);

/** A line: text and nothing but text, whatever is in it; colours of terminals are left out. */
function line(text) {
  const row = document.createElement("div");
  row.dataset.bytes = String(new TextEncoder().encode(text).length);
  const shown = text.replace(/\u001b\[[0-9;?]*[A-Za-z]|\u001b\][^\u0007]*(\u0007|\u001b\\)|\r$/g, "");
  const cut = shown.length > MOST_LETTERS;
  row.textContent =
    (cut ? `${shown.slice(0, MOST_LETTERS)} … (${shown.length} letters)` : shown)
      .replace(/^.*\r(?=.)/, "")
      .replace(/[\u0000-\u0008\u000b-\u001f\u007f\u202a-\u202e\u2066-\u2069]/g, "\ufffd") || "\u200b";
  if (/\b(error|exception|traceback|fatal|killed|out of memory)\b/i.test(shown.slice(0, 500)))
    row.className = "line-bad";
  return row;
}
