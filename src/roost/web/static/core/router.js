// Which page an address means. Filters live in the address, so that any view can be sent to others.

import { redraw } from "./redraw.js";

/** Each page: its pattern, and the module that draws it, loaded when it is first opened. */
/** @type {[string, () => Promise<any>][]} */
const ROUTES = [
  ["/", () => import("../pages/home.js")],
  ["/cluster", () => import("../pages/cluster.js")],
  ["/nodes/:node", () => import("../pages/node.js")],
  ["/jobs", () => import("../pages/jobs.js")],
  ["/jobs/:job", () => import("../pages/job.js")],
  ["/queues", () => import("../pages/queues.js")],
  ["/submit", () => import("../pages/submit.js")],
  ["/lab", () => import("../pages/lab.js")],
  ["/lab/:lab", () => import("../pages/lab-result.js")],
  ["/usage", () => import("../pages/usage.js")],
  ["/templates", () => import("../pages/templates.js")],
  ["/alerts", () => import("../pages/alerts.js")],
  ["/admin", () => import("../pages/admin.js")],
  ["/account", () => import("../pages/account.js")],
  ["/login", () => import("../pages/login.js")],
];
const MISSING = () => import("../pages/missing.js");

/** The address of now: its path, the names in it, and its query. */
export const place = { path: "/", names: {}, query: new URLSearchParams() };

/** @type {(module: any) => void} */
let show = () => {};
let opening = 0;

/** Begin: draw the page of the present address, and follow links. */
export function start(whenOpened) {
  show = whenOpened;
  addEventListener("popstate", () => open());
  document.addEventListener("click", follow);
  return open();
}

/** Go to an address. */
export function go(to, { replace = false } = {}) {
  if (to === location.pathname + location.search) return;
  history[replace ? "replaceState" : "pushState"](null, "", to);
  open();
}

/** Change parameters of the query, and nothing else; empty ones go. */
export function setQuery(changes, { replace = false } = {}) {
  const query = new URLSearchParams(place.query);
  for (const [name, value] of Object.entries(changes)) {
    query.delete(name);
    for (const one of Array.isArray(value) ? value : [value])
      if (one !== "" && one !== null && one !== undefined) query.append(name, String(one));
  }
  const text = query.toString();
  go(text ? `${place.path}?${text}` : place.path, { replace });
}

async function open() {
  const turn = ++opening;
  const path = location.pathname.replace(/(.)\/+$/, "$1");
  const [load, names] = match(path);
  const changed = path !== place.path;
  Object.assign(place, { path, names, query: new URLSearchParams(location.search) });
  const module = await load();
  if (turn !== opening) return;
  show(module);
  if (changed) {
    scrollTo(0, 0);
    document.getElementById("main")?.focus({ preventScroll: true });
  }
  redraw();
}

/** @returns {[() => Promise<any>, Record<string, string>]} */
function match(path) {
  for (const [pattern, load] of ROUTES) {
    const names = fits(pattern, path);
    if (names) return [load, names];
  }
  return [MISSING, {}];
}

/** @returns {Record<string, string> | null} */
function fits(pattern, path) {
  const wanted = pattern.split("/");
  const found = path.split("/");
  if (wanted.length !== found.length) return null;
  /** @type {Record<string, string>} */
  const names = {};
  for (const [index, piece] of wanted.entries()) {
    if (piece.startsWith(":")) {
      try {
        names[piece.slice(1)] = decodeURIComponent(found[index]);
      } catch {
        return null;
      }
    } else if (piece !== found[index]) return null;
  }
  return names;
}

/** Links of our own pages are opened without loading everything again. */
function follow(event) {
  if (event.defaultPrevented || event.button || event.metaKey || event.ctrlKey || event.shiftKey) return;
  const link = event.target.closest?.("a[href]");
  if (!link || link.target || link.hasAttribute("download") || link.origin !== location.origin) return;
  const outside = ["/api/", "/assets/", "/metrics", "/openapi.json", "/healthz", "/readyz"];
  if (outside.some((path) => link.pathname.startsWith(path))) return;
  if (link.hash && link.pathname === location.pathname) return;
  event.preventDefault();
  go(link.pathname + link.search);
}
