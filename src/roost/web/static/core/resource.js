// Something that is asked of the server: loading, there, or not to be had; and how old it is.

import { redraw } from "./redraw.js";

/** The newest answer to a question, and what became of asking again. @template T */
export class Resource {
  #load;
  #stop = null;
  #again;

  /** @param {(signal: AbortSignal) => Promise<T>} load */
  constructor(load) {
    this.#load = load;
    /** @type {T | undefined} */
    this.value = undefined;
    /** @type {any} */
    this.error = null;
    this.loading = false;
    /** When the value came, by this machine's clock, in milliseconds. */
    this.at = 0;
  }

  /** Ask; an answer to an older question is dropped. */
  async reload() {
    this.#stop?.abort();
    clearTimeout(this.#again);
    const stop = (this.#stop = new AbortController());
    this.loading = true;
    redraw();
    try {
      const value = await this.#load(stop.signal);
      if (this.#stop !== stop) return;
      this.value = value;
      this.error = null;
      this.at = Date.now();
    } catch (error) {
      if (this.#stop !== stop || error?.name === "AbortError") return;
      this.error = error;
      // A server that is away comes back; a question that was wrong stays wrong.
      if (!error.status || error.status >= 500) this.#again = setTimeout(() => this.reload(), 5000);
    }
    this.loading = false;
    redraw();
  }

  /** Forget the value: another question comes. */
  clear() {
    this.close();
    this.value = undefined;
    this.error = null;
  }

  close() {
    this.#stop?.abort();
    this.#stop = null;
    clearTimeout(this.#again);
    this.loading = false;
  }
}

/** Does something at most once in so many milliseconds, the last time as well. */
export function seldom(wait, act) {
  let timer = null;
  let last = 0;
  const run = () => {
    timer = null;
    last = Date.now();
    act();
  };
  const ask = () => {
    if (timer === null) timer = setTimeout(run, Math.max(0, last + wait - Date.now()));
  };
  ask.stop = () => {
    clearTimeout(timer);
    timer = null;
  };
  return ask;
}
