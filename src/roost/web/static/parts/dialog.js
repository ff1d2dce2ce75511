// Questions in a dialog: what is going to happen, to what, and how it would be typed.

import { html, nothing, render } from "../vendor/lit-html.js";

/** Show a dialog; `draw(close)` gives its content. Resolves with what it was closed with. */
export function openDialog(label, draw) {
  const dialog = document.createElement("dialog");
  dialog.setAttribute("aria-label", label);
  document.body.append(dialog);
  return new Promise((done) => {
    let answer = null;
    const close = (value) => {
      answer = value;
      dialog.close();
    };
    const redrawDialog = () => render(draw(close, redrawDialog), dialog);
    redrawDialog();
    dialog.addEventListener("close", () => {
      dialog.remove();
      done(answer);
    });
    dialog.addEventListener("click", (event) => {
      if (event.target === dialog) dialog.close();
    });
    dialog.showModal();
  });
}

/**
 * Ask before something is done. Resolves with true, or with the text of the field if there is one.
 *
 * @param {{title: string, body?: any, action: string, danger?: boolean,
 *   field?: {label: string, value?: string, hint?: string}}} question
 */
export function ask({ title, body = nothing, action, danger = false, field }) {
  return openDialog(title, (close) => {
    const submit = (event) => {
      event.preventDefault();
      close(field ? event.target.elements.namedItem("field").value : true);
    };
    return html`<form @submit=${submit}>
      <h2>${title}</h2>
      <div class="dialog-body">${body}</div>
      ${
        field
          ? html`<label class="field"
              >${field.label}
              <input name="field" .value=${field.value ?? ""} autocomplete="off" />
              ${field.hint ? html`<span class="hint">${field.hint}</span>` : nothing}
            </label>`
          : nothing
      }
      <div class="dialog-buttons">
        <button type="button" @click=${() => close(null)}>Back</button>
        <button type="submit" class=${danger ? "danger" : "primary"} ?autofocus=${!field}>${action}</button>
      </div>
    </form>`;
  });
}
