// The page: two tabs, and an address that holds what is typed, so that it can be shared.

import { info, keepKey, Refused } from "./api.js";
import { ListTab } from "./list.js";
import { copy, find, toast } from "./page.js";
import { PairTab } from "./pair.js";

const LONGEST_LINK = 8000; // characters; some programs cut what is longer

const sections = { pair: find("#pair"), list: find("#list") };
let tabs = null;
let shown = "pair";

function show(name, focus = false) {
  shown = name;
  for (const [other, section] of Object.entries(sections)) {
    const tab = find(`#tab-${other}`);
    section.hidden = other !== name;
    tab.setAttribute("aria-selected", String(other === name));
    tab.tabIndex = other === name ? 0 : -1;
    if (focus && other === name) tab.focus();
  }
  tabs?.[name].opened();
  remember();
}

// After the #, which browsers do not send: what is typed does not get into anybody's log.
function link() {
  const fields = new URLSearchParams({ tab: shown, ...tabs[shown].fields() });
  return `#${fields}`;
}

function remember() {
  if (!tabs) return;
  const address = link();
  history.replaceState(null, "", address.length <= LONGEST_LINK ? address : `#tab=${shown}`);
}

function recall() {
  const fields = new URLSearchParams(location.hash.slice(1));
  const name = fields.get("tab") in sections ? fields.get("tab") : "pair";
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
  tabs = { pair: new PairTab(about, remember), list: new ListTab(about, remember) };
  recall();
}

async function begin() {
  try {
    await start();
  } catch (error) {
    if (!(error instanceof Refused)) throw error;
    find("#key").hidden = error.status !== 401;
    find(".error", sections.pair).textContent = error.message;
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
  keepKey(find("#key-value").value);
  find("#key").hidden = true;
  find(".error", sections.pair).textContent = "";
  if (tabs) tabs[shown].opened();
  else begin();
});
addEventListener("hashchange", () => tabs && recall());

begin();
