// The page: three tabs, and a URL fragment that holds the input, so that it can be shared.

import { getInfo, setModel, storeKey } from "./api.js";
import { copy, find, make, toast } from "./common.js";
import { showError } from "./errors.js";
import { LabelledTab } from "./labelled.js";
import { ListTab } from "./list.js";
import { PairTab } from "./pair.js";

const MAX_LINK = 8000; // characters; some programs truncate longer URLs

const select = find("#models select");
const sections = { pair: find("#pair"), list: find("#list"), labelled: find("#labelled") };
let tabs = null; // set once the service has answered
let current = "pair";
let model = null; // name of the model; null if it is the default
let lastRequest = null; // for a model's description
let linkTimer = 0;

function show(name, focus = false) {
  current = name;
  for (const [other, section] of Object.entries(sections)) {
    const tab = find(`#tab-${other}`);
    section.hidden = other !== name;
    tab.setAttribute("aria-selected", String(other === name));
    tab.tabIndex = other === name ? 0 : -1;
    if (focus && other === name) tab.focus();
  }
  if (!tabs) return;
  tabs[name].open();
  updateUrl();
}

// Browsers do not send the fragment: the input does not appear in any log.
const fragment = () =>
  `#${new URLSearchParams({ tab: current, ...(model ? { model } : {}), ...tabs[current].fields() })}`;

// Delayed: browsers limit how often a page may change its URL.
function updateUrl() {
  clearTimeout(linkTimer);
  linkTimer = setTimeout(() => {
    const link = fragment();
    history.replaceState(null, "", link.length <= MAX_LINK ? link : `#tab=${current}`);
  }, 400);
}

const readFields = () => new URLSearchParams(location.hash.slice(1));

function readUrl() {
  const fields = readFields();
  const name = Object.hasOwn(sections, fields.get("tab")) ? fields.get("tab") : current;
  tabs[name].fill(fields);
  show(name);
}

function share() {
  const link = fragment();
  if (link.length > MAX_LINK) toast("The input is too long for a link.");
  else copy(new URL(link, location.href).href, "Link copied.");
}

// Describe a model of the server; null is the default, and stands in for a model that is gone.
async function loadInfo(name) {
  try {
    return await getInfo(name);
  } catch (error) {
    if (error.status !== 404 || name === null) throw error;
    toast(error.message); // an old link may name it
    return getInfo(null);
  }
}

// Use a model of the server, unless another is chosen while its description loads.
async function useModel(name) {
  const request = (lastRequest = Symbol(name));
  const info = await loadInfo(name);
  if (request !== lastRequest) return;
  model = info.model === info.models[0] ? null : info.model;
  setModel(model);
  showModel(info);
  if (tabs) for (const tab of Object.values(tabs)) tab.use(info);
  else {
    tabs = {
      pair: new PairTab(info, updateUrl),
      list: new ListTab(info, updateUrl),
      labelled: new LabelledTab(info, updateUrl),
    };
  }
}

function showModel(info) {
  const size = `${info.latent_dims} latent dims of ${info.classes} classes`;
  find("#model").textContent = `${info.model}, ${info.precision}: ${size}`;
  select.replaceChildren(...info.models.map((each) => make("option", { value: each }, each)));
  select.value = info.model;
  find("#models").hidden = info.models.length < 2;
}

async function start() {
  const error = find(".error", sections[current]);
  try {
    await useModel(readFields().get("model"));
    error.textContent = "";
    for (const input of document.querySelectorAll("textarea, #file")) input.disabled = false;
    readUrl();
  } catch (problem) {
    find("#key").hidden = problem.status !== 401;
    showError(error, problem, start);
    if (problem.retryAfter) setTimeout(start, problem.retryAfter * 1000);
  }
}

for (const name of Object.keys(sections)) {
  find(`#tab-${name}`).addEventListener("click", () => show(name));
}
find('[role="tablist"]').addEventListener("keydown", (event) => {
  const names = Object.keys(sections);
  const position = names.indexOf(current);
  const positions = { ArrowLeft: position - 1, ArrowRight: position + 1, Home: 0, End: names.length - 1 };
  if (!(event.key in positions)) return;
  event.preventDefault();
  show(names.at(positions[event.key] % names.length), true);
});
for (const button of document.querySelectorAll(".share")) button.addEventListener("click", share);
find("#key").addEventListener("submit", (event) => {
  event.preventDefault();
  if (!storeKey(find("#key-value").value.trim())) {
    toast("A key consists of ASCII characters without spaces.");
    return;
  }
  find("#key").hidden = true;
  find(".error", sections.pair).textContent = "";
  if (tabs) tabs[current].open();
  else start();
});
select.addEventListener("change", async () => {
  try {
    await useModel(select.value);
    show(current);
  } catch (error) {
    select.value = model ?? select.options[0].value; // the default is the first
    toast(`The model was not changed: ${error.message}`);
  }
});
addEventListener("hashchange", () => tabs && start());

start();
