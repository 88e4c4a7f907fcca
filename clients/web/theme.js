// Light or dark: as the system says, until somebody says otherwise.

const KEY = "seamscribe.theme";

/** Make a button switch between the two; what was chosen is remembered. */
export function themed(button) {
  const dark = () => document.documentElement.dataset.theme === "dark";
  const show = (theme) => {
    document.documentElement.dataset.theme = theme;
    button.ariaPressed = String(theme === "dark");
  };
  const system = matchMedia("(prefers-color-scheme: dark)");
  const chosen = remembered();
  show(chosen ?? (system.matches ? "dark" : "light"));
  system.onchange = () => remembered() ?? show(system.matches ? "dark" : "light");
  button.onclick = () => {
    show(dark() ? "light" : "dark");
    remember(dark() ? "dark" : "light");
  };
}

function remembered() {
  try {
    return localStorage.getItem(KEY);
  } catch {
    return null; // storage is shut: the system decides
  }
}

function remember(theme) {
  try {
    localStorage.setItem(KEY, theme);
  } catch {
    // the choice lasts as long as the page
  }
}
