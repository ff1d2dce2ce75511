// Begins: who is logged in, which page is meant, and what draws it.

import { render } from "./vendor/lit-html.js";
import { drawWith, redraw } from "./core/redraw.js";
import { go, place, start } from "./core/router.js";
import { findSession, forget, who } from "./core/session.js";
import { begin } from "./core/store.js";
import { listenToKeys } from "./core/keys.js";
import { empty } from "./parts/shown.js";
import { plain } from "./parts/format.js";
import { shell, showKeys } from "./shell.js";

const app = document.getElementById("app");
/** Times such as "12 s ago" go on without news. */
const CLOCK_MS = 2000;

/** The page that is open: what draws it, and what ends it. */
let page = null;
let key = "";

function openPage(module) {
  const wanted = module.keyOf?.(place) ?? place.path;
  if (page && page.module === module && key === wanted) {
    page.moved?.();
    return;
  }
  page?.close?.();
  key = wanted;
  page = Object.assign(module.open(place), { module });
}

function drawPage() {
  if (!page) return;
  document.title = page.title ? `${plain(page.title())} · Roost` : "Roost";
  render(shell(page.view()), app);
  page.drawn?.();
}

/** Where to log in, and come back from. */
function leave() {
  if (place.path === "/login" || !page) return;
  forget();
  const here = location.pathname + location.search;
  go(here === "/" ? "/login" : `/login?next=${encodeURIComponent(here)}`, { replace: true });
}

async function main() {
  app.replaceChildren();
  drawWith(drawPage);
  listenToKeys(showKeys);
  document.addEventListener("roost-logged-out", leave);
  setInterval(() => document.hidden || redraw(), CLOCK_MS);
  try {
    // The page to log in on has nothing to ask for.
    if (location.pathname !== "/login") await findSession();
  } catch (error) {
    render(empty(error.message, error.hint), app);
    setTimeout(main, 3000);
    return;
  }
  if (who()) begin();
  else if (location.pathname !== "/login") {
    const here = location.pathname + location.search;
    history.replaceState(null, "", here === "/" ? "/login" : `/login?next=${encodeURIComponent(here)}`);
  }
  await start(openPage);
}

main();
