// Requests to the server: JSON in and out, and every fault as one kind of error.

/** What went wrong: the server's own words, or that it cannot be reached. */
export class ApiError extends Error {
  /**
   * @param {number} status 0: there was no answer
   * @param {{kind?: string, message?: string, hint?: string}} told
   * @param {{line?: number, column?: number, field?: string, message: string}[]} faults
   */
  constructor(status, told, faults = []) {
    super(told.message || "the server gave no reason");
    this.status = status;
    this.kind = told.kind ?? "fatal";
    this.hint = told.hint ?? "";
    this.faults = faults;
  }
}

const UNREACHABLE = {
  kind: "unreachable",
  message: "The server does not answer.",
  hint: "This page tries again by itself.",
};

/** An address with its query; parameters that are empty are left out. */
export function address(path, query = {}) {
  const found = new URLSearchParams();
  for (const [name, value] of Object.entries(query)) {
    for (const one of Array.isArray(value) ? value : [value])
      if (one !== "" && one !== null && one !== undefined) found.append(name, String(one));
  }
  const text = found.toString();
  return text ? `${path}?${text}` : path;
}

/** A part of a path, safe whatever is in it. */
export function part(name) {
  return encodeURIComponent(name);
}

/**
 * Ask the server; the answer's body, or an ApiError.
 *
 * @param {string} method
 * @param {string} path below /api/v1
 * @param {{query?: object, body?: any, key?: string, signal?: AbortSignal}} options
 */
export async function call(method, path, { query, body, key, signal } = {}) {
  const answer = await fetched(method, path, { query, body, key, signal });
  if (answer.status === 204) return null;
  const kind = answer.headers.get("content-type") ?? "";
  return kind.includes("json") ? answer.json() : answer.text();
}

/** The same, with the answer as it is: for its headers. */
export async function fetched(method, path, { query, body, key, signal } = {}) {
  const headers = { Accept: "application/json, text/plain" };
  if (method !== "GET") headers["X-Roost-Request"] = "portal";
  if (body !== undefined) headers["Content-Type"] = "application/json";
  if (key) headers["Idempotency-Key"] = key;
  let answer;
  try {
    answer = await fetch(address(`/api/v1${path}`, query), {
      method,
      headers,
      signal,
      body: body === undefined ? undefined : JSON.stringify(body),
    });
  } catch (error) {
    if (error instanceof DOMException && error.name === "AbortError") throw error;
    throw new ApiError(0, UNREACHABLE);
  }
  if (!answer.ok) throw await fault(answer);
  return answer;
}

export const get = (path, query, signal) => call("GET", path, { query, signal });
export const post = (path, body, options = {}) => call("POST", path, { body, ...options });
export const put = (path, body) => call("PUT", path, { body });
export const patch = (path, body) => call("PATCH", path, { body });
export const remove = (path, query) => call("DELETE", path, { query });

async function fault(answer) {
  let told = {};
  try {
    told = await answer.json();
  } catch {
    // A proxy's page, or nothing: the status has to do.
  }
  const found = told.error ?? { message: `The server answered ${answer.status}.` };
  if (answer.status === 401) document.dispatchEvent(new CustomEvent("roost-logged-out"));
  return new ApiError(answer.status, found, told.errors ?? []);
}
