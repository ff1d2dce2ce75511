// Sets the colours that were chosen before anything is drawn; no module, so that it runs at once.
{
  const chosen = localStorage.getItem("roost-theme");
  if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
}
