// Logging in with a token, where no link did it.

import { html, nothing } from "../vendor/lit-html.js";
import { redraw } from "../core/redraw.js";
import { go, place } from "../core/router.js";
import { logIn, who } from "../core/session.js";
import { beginAnew } from "../core/store.js";
import { bird } from "../parts/icons.js";
import { plain } from "../parts/format.js";

const PROBLEMS = {
  link: "This link was used already, or is older than 15 minutes. Print another one with roost open.",
  token: "The token that this link was made with does not work any more.",
};

/** Where to go afterwards: a path of this server, and nothing else. */
function onward() {
  const next = place.query.get("next") ?? "/";
  return /^\/(?![/\\])/.test(next) && !next.startsWith("/login") ? next : "/";
}

export function open() {
  let problem = PROBLEMS[place.query.get("problem") ?? ""] ?? "";
  let busy = false;
  if (who()) queueMicrotask(() => go(onward(), { replace: true }));

  async function submit(event) {
    event.preventDefault();
    const token = event.target.elements.namedItem("token").value.trim();
    if (!token) return;
    busy = true;
    problem = "";
    redraw();
    try {
      await logIn(token);
      beginAnew();
      go(onward(), { replace: true });
    } catch (error) {
      problem = error.status === 401 ? "No such token, or it was revoked or ran out." : error.message;
    }
    busy = false;
    redraw();
  }

  return {
    title: () => "Log in",
    view: () =>
      html`<div class="login card">
        <div class="login-brand">
          ${bird}
          <h1>Roost</h1>
        </div>
        <p>Type <code>roost open</code> on a machine where you are logged in: it opens these pages.</p>
        <form @submit=${submit}>
          <input type="text" name="username" autocomplete="username" hidden />
          <label class="field"
            >Or paste a token
            <input
              name="token"
              type="password"
              autocomplete="current-password"
              required
              autofocus
              aria-describedby="login-problem"
            />
          </label>
          <p id="login-problem" class="problem" role="alert">${problem ? plain(problem) : nothing}</p>
          <button type="submit" class="primary" ?disabled=${busy}>${busy ? "Logging in" : "Log in"}</button>
        </form>
      </div>`,
  };
}
