// Who the page is to the server. A key or token is held in this module's memory and nowhere else: not in the
// address, not in storage; closing the page forgets it.

const KEY_PREFIX = "smk_";

let secret = taken();

/** A token that the page's address brought behind its #, which no server sees; it is taken out of the address. */
function taken() {
  const given = new URLSearchParams(location.hash.slice(1)).get("token") ?? "";
  if (given) history.replaceState(null, "", location.pathname + location.search);
  return given;
}

/** Headers for a request that a key may make. */
export function headers() {
  return secret ? { authorization: `Bearer ${secret}` } : {};
}

/** A token for `start`, which works once: minted where we have a key. Undefined where we have neither. */
export async function token() {
  if (!secret.startsWith(KEY_PREFIX)) {
    const once = secret || undefined;
    secret = "";
    return once;
  }
  const answer = await fetch("/v1/tokens", {
    method: "POST",
    headers: { ...headers(), "content-type": "application/json" },
    body: JSON.stringify({ scope: "speak" }),
  });
  if (answer.ok) return (await answer.json()).token;
  throw new Error((await answer.text()).trim());
}

/** Ask the person for a key or token, in a `<dialog>`; false where none was given. */
export function ask(dialog, why) {
  const field = dialog.querySelector("input");
  dialog.querySelector("[data-why]").textContent = why;
  dialog.returnValue = "";
  dialog.showModal();
  return new Promise((resolve) => {
    dialog.onclose = () => {
      const used = dialog.returnValue === "use";
      if (used) secret = field.value.trim();
      field.value = "";
      resolve(used);
    };
  });
}
