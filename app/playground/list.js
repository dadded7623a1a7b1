// The second tab: a list of sentences, all with all, and which are near-duplicates.

import { matrix } from "./api.js";
import { sequential } from "./colours.js";
import { HeatMap, legend, range, toldOf } from "./heat.js";
import { copy, find, Live, make, number } from "./page.js";

const EXAMPLE = [
  "How do I reset my password?",
  "I forgot my password and cannot log in.",
  "Where can I change my password?",
  "The delivery has not arrived yet.",
  "My parcel still is not here.",
  "Can I pay by credit card?",
  "Do you accept credit cards?",
  "What are your opening hours?",
];
const ROUNDING = 1e-6; // of similarities
const START = { cosine: 0.6, js: 0.65, bhattacharyya: 0.7, centred: 0.5, l2: -6 };

export class ListTab {
  constructor(about, changed) {
    this.changed = changed;
    this.metrics = about.metrics;
    this.metric = find("#list-metric");
    this.lines = find("#lines");
    this.threshold = find("#threshold");
    this.asked = null; // a threshold from a link, or chosen
    this.begun = false;
    for (const metric of about.metrics) this.metric.append(make("option", {}, metric));
    this.metric.value = about.recommended_metric;
    this.live = new Live(find("#list"), (signal) => this.compare(signal));
    this.map = new HeatMap(find("#matrix"), (i, j) => this.tellCell(i, j));
    this.lines.addEventListener("input", () => this.edited());
    this.metric.addEventListener("change", () => this.compareBy());
    this.threshold.addEventListener("input", () => this.moved());
    find("#copy-unique").addEventListener("click", () => this.copyUnique());
  }

  fields() {
    const { metric, lines, asked } = this;
    return { list: lines.value, metric: metric.value, ...(asked === null ? {} : { threshold: asked }) };
  }

  fill(fields) {
    if (this.metrics.includes(fields.get("metric"))) this.metric.value = fields.get("metric");
    const asked = Number.parseFloat(fields.get("threshold"));
    this.asked = Number.isFinite(asked) ? asked : null;
    this.lines.value = fields.get("list") ?? "";
  }

  opened() {
    if (!this.begun && !this.lines.value) this.lines.value = EXAMPLE.join("\n");
    this.begun = true;
    this.live.now();
  }

  edited() {
    this.changed();
    this.live.later(400);
  }

  compareBy() {
    this.asked = null; // another metric's would mean something else
    this.changed();
    this.live.now();
  }

  moved() {
    this.asked = Number(this.threshold.value);
    this.changed();
    cancelAnimationFrame(this.frame);
    this.frame = requestAnimationFrame(() => this.show());
  }

  get from() {
    return this.asked ?? START[this.metric.value];
  }

  async compare(signal) {
    const inputs = this.lines.value.split("\n").map((line) => line.trim()).filter(Boolean);
    if (inputs.length < 2) return false;
    const scores = await matrix({ inputs, metric: this.metric.value }, signal);
    if (signal.aborted) return false;
    this.sentences = inputs;
    this.scores = scores;
    this.range = range(scores);
    this.live.results.hidden = false; // before anything is drawn: it needs its width
    this.bound();
    this.show();
    return true;
  }

  // The slider goes over the similarities that there are, and what is chosen, which may be beyond.
  bound() {
    const [low, high] = range([...this.pairs(), this.from]);
    this.threshold.min = low;
    this.threshold.max = high;
    this.threshold.value = this.from;
  }

  *pairs() {
    const count = this.sentences.length;
    for (let i = 0; i < count; i += 1) {
      for (let j = i + 1; j < count; j += 1) yield this.scores[i * count + j];
    }
  }

  show() {
    find("#threshold-value").textContent = number(this.from);
    const groups = grouped(this.sentences.length, this.scores, this.from - ROUNDING);
    this.clusters = groups.filter((group) => group.length > 1);
    this.order = groups.flat();
    this.showClusters();
    this.showMatrix();
  }

  showClusters() {
    const { clusters, sentences } = this;
    const inside = clusters.flat().length;
    const left = sentences.length - inside + clusters.length;
    const groups = clusters.length === 1 ? "1 group" : `${clusters.length} groups`;
    find("#found").textContent = clusters.length
      ? `${inside} of ${sentences.length} sentences are in ${groups}; ${left} remain if one of each is kept.`
      : `No two of the ${sentences.length} sentences are so similar.`;
    find("#clusters").replaceChildren(...clusters.map((cluster) =>
      make("ul", {}, ...cluster.map((place) => make("li", {}, sentences[place])))));
    find("#copy-unique").hidden = !clusters.length;
  }

  showMatrix() {
    const { order, scores, sentences } = this;
    const count = sentences.length;
    const [low, high] = this.range;
    const colour = sequential(low, high);
    const value = (i, j) => scores[order[i] * count + order[j]];
    const names = order.map((place) => sentences[place]);
    this.map.show({ rows: count, columns: count, value, colour, names: { rows: names, columns: names }, margin: 150 },
      `Similarity of ${count} sentences to each other: explore with the arrow keys.`);
    toldOf(this.map.canvas).textContent = "";
    legend(find("#list .legend"), colour, low, high);
  }

  tellCell(i, j) {
    const [a, b] = [this.order[i], this.order[j]];
    const said = number(this.scores[a * this.sentences.length + b]);
    toldOf(this.map.canvas).textContent = `${said}: “${this.sentences[a]}” and “${this.sentences[b]}”`;
  }

  copyUnique() {
    const dropped = new Set(this.clusters.flatMap((cluster) => cluster.slice(1)));
    const kept = this.sentences.filter((_, place) => !dropped.has(place));
    copy(kept.join("\n"), `${kept.length} sentences are copied.`);
  }
}

// Each place that is not taken yet takes those after it that are at least so similar to it: so the
// first of a group can stand for all of it. Larger groups first, and else in their order.
export function grouped(count, scores, from) {
  const taken = new Set();
  const groups = [];
  for (let i = 0; i < count; i += 1) {
    if (taken.has(i)) continue;
    const group = [i];
    for (let j = i + 1; j < count; j += 1) {
      if (!taken.has(j) && scores[i * count + j] >= from) group.push(j);
    }
    group.forEach((place) => taken.add(place));
    groups.push(group);
  }
  return groups.sort((x, y) => y.length - x.length);
}
