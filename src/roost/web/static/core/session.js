// Who is logged in, and what the role allows.

import { fetched, post, remove } from "./api.js";
import { noteTime } from "./store.js";

/** @type {{user: string, role: string, permissions: string[], assets: string, version: string} | null} */
let session = null;

export const who = () => session;

/** Whether the role allows something, such as jobs:write. */
export function may(permission) {
  return session?.permissions.includes(permission) ?? false;
}

/** Find out who is logged in; null for nobody. */
export async function findSession() {
  try {
    const answer = await fetched("GET", "/session");
    const date = Date.parse(answer.headers.get("date") ?? "");
    if (date) noteTime(date / 1000);
    session = await answer.json();
  } catch (error) {
    if (error.status !== 401) throw error;
    session = null;
  }
  return session;
}

export async function logIn(token) {
  session = await post("/session", { token });
}

export async function logOut(everywhere = false) {
  await remove("/session", everywhere ? { everywhere: true } : {});
  session = null;
}

export function forget() {
  session = null;
}
