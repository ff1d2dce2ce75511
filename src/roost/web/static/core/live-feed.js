// Holds the one live stream of a browser, and begins again when it breaks.

const FIRST_WAIT = 500;
const LONGEST_WAIT = 5000;
/** Nothing heard for so long: look whether the server is there at all. */
const QUIET = 15000;

/** Reads the stream; tells `message(kind, data)` and `status(what, why)`. */
export class LiveFeed {
  #source = null;
  #last = "";
  #wait = FIRST_WAIT;
  #timer;
  #watch;
  #tell;

  /** @param {{message: (kind: string, data: any) => void, status: (what: string, why?: string) => void}} tell */
  constructor(tell) {
    this.#tell = tell;
  }

  /** Begin, or begin anew: another user may have logged in. */
  open({ anew = false } = {}) {
    if (anew) this.#last = "";
    this.close();
    this.#tell.status("connecting");
    this.#connect();
  }

  close() {
    clearTimeout(this.#timer);
    clearTimeout(this.#watch);
    this.#source?.close();
    this.#source = null;
  }

  #connect() {
    const after = this.#last ? `?after=${encodeURIComponent(this.#last)}` : "";
    const source = (this.#source = new EventSource(`/api/v1/stream${after}`));
    source.onopen = () => {
      this.#wait = FIRST_WAIT;
      this.#tell.status("live");
      this.#heard();
    };
    for (const kind of ["snapshot", "delta"])
      source.addEventListener(kind, (event) => {
        this.#last = event.lastEventId || this.#last;
        this.#heard();
        this.#tell.message(kind, JSON.parse(event.data));
      });
    source.addEventListener("bye", (event) => this.#again(JSON.parse(event.data).why ?? ""));
    source.onerror = () => this.#again("");
  }

  /** The stream broke, or the server ended it: find out why, and try again. */
  async #again(why) {
    this.close();
    this.#tell.status("retrying", why);
    const wait = this.#wait * (0.75 + Math.random() / 2);
    this.#wait = Math.min(LONGEST_WAIT, this.#wait * 2);
    this.#timer = setTimeout(async () => {
      const status = await answers("/api/v1/session");
      if (status === 401) this.#tell.status("out", why);
      else if (status === 200) this.#connect();
      else this.#again(why);
    }, wait);
  }

  #heard() {
    clearTimeout(this.#watch);
    this.#watch = setTimeout(async () => {
      const status = await answers("/healthz");
      if (status === 0) this.#again("");
      else this.#heard();
    }, QUIET);
  }
}

/** The status of an answer; 0 where there is none in time. */
async function answers(path) {
  try {
    const signal = AbortSignal.timeout(5000);
    return (await fetch(path, { cache: "no-store", signal })).status;
  } catch {
    return 0;
  }
}
