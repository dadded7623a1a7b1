// The first tab: two sentences, their similarity by every metric, and where it comes from.

import { latent, post, readBase64 } from "./api.js";
import { Aligned } from "./aligned.js";
import { diverging, sequential } from "./colours.js";
import { HeatMap, legend, range, toldOf } from "./heat.js";
import { find, Live, make, number, shortened, signed } from "./page.js";

const EXAMPLES = [
  ["A man is eating.", "Someone is having lunch."],
  ["How do I reset my password?", "I forgot my password and cannot log in."],
  ["She finished the marathon in four hours.", "It took her four hours to run the marathon."],
  ["The dog bites the man.", "The man bites the dog."],
  ["Share prices fell sharply on Tuesday.", "The cat sat by the window."],
];

export class PairTab {
  constructor(about, changed) {
    this.about = about;
    this.changed = changed;
    this.metric = about.recommended_metric;
    this.begun = false;
    this.texts = [find("#a"), find("#b")];
    this.live = new Live(find("#pair"), (signal) => this.compare(signal));
    this.aligned = new Aligned(find("#aligned"), find("#told"));
    this.alignment = new HeatMap(find("#alignment"), (i, j) => this.tellCell(i, j));
    this.strips = ["First", "Second", "Difference (first − second)"].map((name) => this.strip(name));
    this.meanings = new Map();
    this.offerMetrics();
    this.offerExamples();
    for (const text of this.texts) text.addEventListener("input", () => this.edited());
    find("#swap").addEventListener("click", () => this.set(this.texts[1].value, this.texts[0].value));
  }

  offerMetrics() {
    for (const metric of this.about.metrics) {
      const radio = make("input", { type: "radio", name: "metric", value: metric });
      radio.checked = metric === this.metric;
      radio.addEventListener("change", () => this.choose(metric));
      const score = make("output", { className: "score", id: `score-${metric}` });
      find("#scores").append(make("label", { className: "metric" }, radio, make("span", {}, metric), score));
    }
  }

  offerExamples() {
    const select = find("#examples");
    EXAMPLES.forEach(([a, b], i) => select.append(make("option", { value: i }, shortened(`${a} / ${b}`))));
    select.addEventListener("change", () => {
      if (select.value) this.set(...EXAMPLES[select.value]);
      select.value = "";
    });
  }

  fields() {
    return { a: this.texts[0].value, b: this.texts[1].value, metric: this.metric };
  }

  fill(fields) {
    const metric = fields.get("metric");
    if (this.about.metrics.includes(metric)) this.metric = metric;
    find(`#scores input[value="${this.metric}"]`).checked = true;
    ["a", "b"].forEach((name, i) => (this.texts[i].value = fields.get(name) ?? ""));
  }

  opened() {
    if (!this.begun && !this.texts.some((text) => text.value)) {
      this.texts.forEach((text, i) => (text.value = EXAMPLES[0][i]));
    }
    this.begun = true;
    this.live.now();
  }

  set(a, b) {
    [this.texts[0].value, this.texts[1].value] = [a, b];
    this.changed();
    this.live.now();
  }

  edited() {
    this.changed();
    this.live.later();
  }

  choose(metric) {
    this.metric = metric;
    this.changed();
    this.live.now();
  }

  async compare(signal) {
    const pair = this.texts.map((text) => text.value);
    if (!pair.every((text) => text.trim())) return false;
    const [scores, explained, embedded] = await Promise.all([
      post("similarity", { pairs: [pair], metrics: this.about.metrics }, signal),
      post("explain", { pair, metric: this.metric, token_alignment: false }, signal),
      post("embed", { inputs: pair, format: "base64" }, signal),
    ]);
    if (signal.aborted) return false;
    this.live.results.hidden = false; // before anything is drawn: it needs its width
    this.showScores(scores.similarities[0]);
    this.aligned.show(pair, explained);
    this.showAlignment(explained);
    this.showSums(explained);
    this.showDims(explained.latents);
    this.showStrips(embedded.embeddings.map(readBase64));
    return true;
  }

  showScores(scores) {
    for (const metric of this.about.metrics) find(`#score-${metric}`).textContent = number(scores[metric]);
  }

  showAlignment(explained) {
    this.explained = explained;
    const table = explained.alignment.words;
    const [low, high] = range(table.flat());
    const colour = sequential(low, high);
    const names = { rows: explained.a.words.map((w) => w.text), columns: explained.b.words.map((w) => w.text) };
    const label = `Similarity of ${names.rows.length} by ${names.columns.length} words: explore with the arrow keys.`;
    const map = { rows: names.rows.length, columns: names.columns.length, value: (i, j) => table[i][j] };
    this.alignment.show({ ...map, colour, names }, label);
    toldOf(this.alignment.canvas).textContent = "";
    legend(find("#pair .legend"), colour, low, high);
  }

  tellCell(i, j) {
    const { a, b, alignment } = this.explained;
    const words = `“${a.words[i].text}” and “${b.words[j].text}”`;
    toldOf(this.alignment.canvas).textContent = `${words}: ${number(alignment.words[i][j])}`;
  }

  // What words and special tokens of either sentence add up to.
  showSums(explained) {
    const head = make("tr", {}, ...["part", "first", "second"].map((name) => make("th", { scope: "col" }, name)));
    const total = (parts) => parts.reduce((sum, part) => sum + part.contribution, 0);
    const sides = [explained.a, explained.b];
    const rows = [
      ["words", sides.map((side) => signed(total(side.words)))],
      ["special tokens", sides.map((side) => signed(total(side.tokens.filter((t) => t.word === null))))],
      [`${explained.metric}`, sides.map((side) => number(total(side.tokens)))],
      ["tokens read", sides.map((side) => tokensRead(side))],
    ];
    const lines = rows.map(([name, cells]) =>
      make("tr", {}, make("th", { scope: "row" }, name), ...cells.map((cell) => make("td", {}, cell))));
    find("#sums").replaceChildren(head, ...lines);
    const links = [...explained.alignment.links].sort((x, y) => y.similarity - x.similarity);
    const named = (link) => `${explained.a.words[link.a].text} ~ ${explained.b.words[link.b].text} `;
    find("#links").replaceChildren(
      ...links.map((link) => make("li", {}, named(link), make("b", {}, number(link.similarity)))));
  }

  showDims({ agree, disagree }) {
    const heads = ["variable", "adds", "first", "second"].map((name) => make("th", { scope: "col" }, name));
    const described = (found) => {
      const words = found.words ? found.words.join(", ") : `class ${found.index}`;
      return make("td", {}, words, " ", make("span", { className: "quiet" }, `${Math.round(100 * found.share)}\u00a0%`));
    };
    const row = (dim) => make("tr", {}, make("th", { scope: "row" }, dim.dim),
      make("td", {}, signed(dim.contribution)), described(dim.a), described(dim.b));
    find("#agree").replaceChildren(make("tr", {}, ...heads.map((h) => h.cloneNode(true))), ...agree.map(row));
    find("#disagree").replaceChildren(make("tr", {}, ...heads), ...disagree.map(row));
  }

  strip(name) {
    const canvas = make("canvas", { tabIndex: 0 });
    canvas.setAttribute("role", "application");
    const place = make("div", { className: "legend" });
    find("#strips").append(make("figure", {}, make("figcaption", {}, name), canvas, place));
    return { name, place, map: new HeatMap(canvas, (index, dim) => this.tellLatent(dim, index)) };
  }

  showStrips([a, b]) {
    const { latent_dims: columns, classes: rows } = this.about;
    this.mixtures = [a, b];
    const difference = a.map((value, k) => value - b[k]);
    const [, most] = range([...a, ...b]);
    const [low, high] = range(difference);
    const apart = Math.max(-low, high);
    const shared = sequential(0, most);
    const scales = [[shared, 0, most], [shared, 0, most], [diverging(apart), -apart, apart]];
    [a, b, difference].forEach((values, which) => {
      const { name, place, map } = this.strips[which];
      const [colour, from, to] = scales[which];
      const value = (i, j) => values[j * rows + i];
      map.show({ rows, columns, value, colour, height: 5, widest: 9 },
        `${name}: ${columns} latent variables of ${rows} classes; explore with the arrow keys.`);
      legend(place, colour, from, to);
    });
    find("#latent").textContent = "";
  }

  async tellLatent(dim, index) {
    const place = dim * this.about.classes + index;
    const shares = this.mixtures.map((mixture) => number(mixture[place]));
    const told = `Variable ${dim}, class ${index}: first ${shares[0]}, second ${shares[1]}`;
    this.latent = place;
    find("#latent").textContent = told;
    if (!this.meanings.has(place)) await new Promise((resolve) => setTimeout(resolve, 100));
    if (this.latent !== place) return; // the pointer is elsewhere by now
    const words = await this.wordsOf(dim, index, place);
    if (this.latent === place && words) find("#latent").textContent = `${told}: ${words}`;
  }

  // What a class means; nothing, if the model does not know.
  async wordsOf(dim, index, place) {
    if (!this.meanings.has(place)) {
      try {
        const found = await latent(dim, index);
        this.meanings.set(place, found.words.map((word) => word.word).join(", "));
      } catch (error) {
        if (error.status === 404) this.meanings.set(place, "");
      }
    }
    return this.meanings.get(place);
  }
}

const tokensRead = ({ tokens, truncated, total_tokens: total }) =>
  truncated ? `${tokens.length} of ${total}` : String(total);
