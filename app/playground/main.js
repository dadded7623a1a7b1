// The page: two tabs, and an address that holds what is typed, so that it can be shared.

import { info, keepKey, Refused } from "./api.js";
import { ListTab } from "./list.js";
import { copy, find, toast } from "./page.js";
import { PairTab } from "./pair.js";

const LONGEST_LINK = 8000; // characters; some programs cut what is longer

const sections = { pair: find("#pair"), list: find("#list") };
let tabs = null;
let shown = "pair";
let remembering = 0;

function show(name, focus = false) {
  shown = name;
  for (const [other, section] of Object.entries(sections)) {
    const tab = find(`#tab-${other}`);
    section.hidden = other !== name;
    tab.setAttribute("aria-selected", String(other === name));
    tab.tabIndex = other === name ? 0 : -1;
    if (focus && other === name) tab.focus();
  }
  if (!tabs) return;
  tabs[name].opened();
  remember();
}

// After the #, which browsers do not send: what is typed does not get into anybody's log.
function link() {
  const fields = new URLSearchParams({ tab: shown, ...tabs[shown].fields() });
  return `#${fields}`;
}

// Not at every keystroke: a browser may let the address change only so often.
function remember() {
  clearTimeout(remembering);
  remembering = setTimeout(() => {
    const address = link();
    history.replaceState(null, "", address.length <= LONGEST_LINK ? address : `#tab=${shown}`);
  }, 400);
}

function recall() {
  const fields = new URLSearchParams(location.hash.slice(1));
  const name = Object.hasOwn(sections, fields.get("tab")) ? fields.get("tab") : "pair";
  tabs[name].fill(fields);
  show(name);
}

function share() {
  if (link().length > LONGEST_LINK) toast("This is too long for a link.");
  else copy(new URL(link(), location.href).href, "The link is copied.");
}

async function start() {
  const about = await info();
  const size = `${about.latent_dims} latent variables of ${about.classes} classes`;
  find("#model").textContent = `${about.model}, ${about.precision}: ${size}`;
  find(".error", sections.pair).textContent = "";
  tabs = { pair: new PairTab(about, remember), list: new ListTab(about, remember) };
  for (const text of document.querySelectorAll("textarea")) text.disabled = false;
  recall();
}

async function begin() {
  try {
    await start();
  } catch (error) {
    if (!(error instanceof Refused)) throw error;
    find("#key").hidden = error.status !== 401;
    find(".error", sections.pair).textContent = error.message;
    if (error.retryAfter) setTimeout(begin, error.retryAfter * 1000);
  }
}

for (const name of Object.keys(sections)) {
  find(`#tab-${name}`).addEventListener("click", () => show(name));
}
find('[role="tablist"]').addEventListener("keydown", (event) => {
  if (["ArrowLeft", "ArrowRight"].includes(event.key)) show(shown === "pair" ? "list" : "pair", true);
});
for (const button of document.querySelectorAll(".share")) button.addEventListener("click", share);
find("#key").addEventListener("submit", (event) => {
  event.preventDefault();
  if (!keepKey(find("#key-value").value.trim())) {
    toast("A key is plain ASCII without spaces.");
    return;
  }
  find("#key").hidden = true;
  find(".error", sections.pair).textContent = "";
  if (tabs) tabs[shown].opened();
  else begin();
});
addEventListener("hashchange", () => tabs && recall());

begin();
