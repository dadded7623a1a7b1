// The first tab: two sentences, their calibrated similarity and scores by metric, and an explanation.

import { WordAlignment } from "./alignment.js";
import { allInOrder, parseBase64, post } from "./api.js";
import { Calibration } from "./calibration.js";
import { sequential } from "./colours.js";
import { find, format, formatSigned, make, metricLabel, shorten } from "./common.js";
import { HeatMap, range, showLegend } from "./heatmap.js";
import { LiveResults } from "./live.js";
import { Meaning } from "./meaning.js";
import { Mixtures } from "./mixtures.js";
import { commandsOf, connect, modelField } from "./snippets.js";
import { headerRow, LazyTable } from "./tables.js";

const MAX_TABLE = 100; // words of a sentence in the table of similarities

const EXAMPLES = [
  ["A man is eating.", "Someone is having lunch."],
  ["How do I reset my password?", "I forgot my password and cannot log in."],
  ["She finished the marathon in four hours.", "It took her four hours to run the marathon."],
  ["The dog bites the man.", "The man bites the dog."],
  ["Share prices fell sharply on Tuesday.", "The cat sat by the window."],
];

export class PairTab {
  // `info` is the response of `/info`; `onChange` is called when the input changes.
  constructor(info, onChange) {
    this.onChange = onChange;
    this.opened = false;
    this.texts = [find("#a"), find("#b")];
    this.live = new LiveResults(find("#pair"), (signal) => this.compare(signal));
    this.meaning = new Meaning(find("#meaning"));
    this.alignment = new WordAlignment(find("#alignment"), find("#word-details"));
    this.wordMatrix = new HeatMap(find("#word-matrix"), (i, j) => this.describePair(i, j));
    this.wordTable = new LazyTable(find("#word-matrix-table"));
    this.contributions = new LazyTable(find("#words-table"));
    this.mixtures = new Mixtures(find("#mixtures"), find("#class-details"), find("#mixtures-table"));
    this.use(info);
    this.addExamples();
    for (const text of this.texts) text.addEventListener("input", () => this.changed(250));
    find("#swap").addEventListener("click", () => this.set(this.texts[1].value, this.texts[0].value));
    connect(find("#pair .copies"), () => this.commands("similarity"));
    connect(find("#explain-tools"), () => this.commands("explain"));
  }

  // Show the results of another model from now on.
  use(info) {
    this.info = info;
    if (!info.metrics.includes(this.metric)) this.metric = info.recommended_metric;
    this.mixtures.use(info);
    this.calibration = Calibration.of(info);
    this.meaning.use(this.calibration);
    find("#metrics").open ||= !this.calibration;
    this.addMetrics();
  }

  addMetrics() {
    for (const label of document.querySelectorAll("#scores label")) label.remove();
    for (const metric of this.info.metrics) {
      const radio = make("input", { type: "radio", name: "metric", value: metric });
      radio.checked = metric === this.metric;
      radio.addEventListener("change", () => {
        this.metric = metric;
        this.changed();
      });
      const score = make("output", { className: "score", id: `score-${metric}` });
      const name = make("span", {}, metricLabel(metric, this.info));
      find("#scores").append(make("label", { className: "metric" }, radio, name, score));
    }
  }

  addExamples() {
    const select = find("#examples");
    EXAMPLES.forEach(([a, b], i) => select.append(make("option", { value: i }, shorten(`${a} / ${b}`))));
    select.addEventListener("change", () => {
      if (select.value) this.set(...EXAMPLES[select.value]);
      select.value = "";
    });
  }

  // The input, for the URL.
  fields() {
    return { a: this.texts[0].value, b: this.texts[1].value, metric: this.metric };
  }

  fill(fields) {
    const metric = fields.get("metric");
    if (this.info.metrics.includes(metric)) this.metric = metric;
    find(`#scores input[value="${this.metric}"]`).checked = true;
    if (this.metric !== this.info.recommended_metric) find("#metrics").open = true;
    ["a", "b"].forEach((name, i) => (this.texts[i].value = fields.get(name) ?? ""));
  }

  open() {
    if (!this.opened && !this.texts.some((text) => text.value)) {
      this.texts.forEach((text, i) => (text.value = EXAMPLES[0][i]));
    }
    this.opened = true;
    this.live.run();
  }

  set(a, b) {
    [this.texts[0].value, this.texts[1].value] = [a, b];
    this.changed();
  }

  changed(delay = 0) {
    this.onChange();
    if (delay) this.live.schedule(delay);
    else this.live.run();
  }

  get pair() {
    return this.texts.map((text) => text.value);
  }

  // Which input is missing; empty if none is.
  get missing() {
    const [first, second] = this.pair.map((text) => text.trim() === "");
    if (first && second) return "Enter two sentences to compare them.";
    if (first || second) return `Enter a ${first ? "first" : "second"} sentence to compare both.`;
    return "";
  }

  // The commands that return what the page shows; null if sentences are missing.
  commands(path) {
    const { info, metric, pair } = this;
    if (this.missing) return null;
    const body = path === "explain" ? { pair, metric } : { pairs: [pair], metrics: info.metrics };
    return commandsOf(path, { ...body, ...modelField(info) });
  }

  async compare(signal) {
    const { missing, pair } = this;
    if (missing) return missing;
    const [scores, explanation, embedding] = await allInOrder([
      post("similarity", { pairs: [pair], metrics: this.info.metrics }, signal),
      post("explain", { pair, metric: this.metric, token_alignment: false }, signal),
      post("embed", { inputs: pair, format: "base64" }, signal),
    ]);
    if (signal.aborted) return "";
    this.live.results.hidden = false; // before drawing, which needs the width
    this.explanation = explanation;
    this.showScores(scores.similarities[0]);
    this.alignment.show(pair, explanation);
    this.contributions.show(() => contributionTable(explanation));
    this.showWordMatrix(explanation);
    this.showBreakdown(explanation);
    this.showLinks(explanation);
    this.showLatents(explanation.latents);
    this.mixtures.show(embedding.embeddings.map(parseBase64));
    return "";
  }

  showScores(scores) {
    for (const metric of this.info.metrics) find(`#score-${metric}`).textContent = format(scores[metric]);
    find("#explained").textContent = `${this.metric} ${format(scores[this.metric])}`;
    if (this.calibration) this.meaning.show(scores[this.calibration.kind]);
  }

  showWordMatrix({ a, b, alignment }) {
    const [low, high] = range(alignment.words.flat());
    const colour = sequential(low, high);
    const labels = { rows: a.words.map((word) => word.text), columns: b.words.map((word) => word.text) };
    const [rows, columns] = [labels.rows.length, labels.columns.length];
    const value = (i, j) => alignment.words[i][j];
    const map = { rows, columns, value, colour, labels, text: (similarity) => format(similarity, 2) };
    this.wordMatrix.show(map, `Similarity of ${rows} by ${columns} words; use the arrow keys to explore.`);
    this.wordMatrix.details.textContent = "";
    this.wordTable.show(() => similarityTable(labels, alignment.words));
    showLegend(find("#pair .legend"), colour, low, high);
  }

  describePair(i, j) {
    const { a, b, alignment } = this.explanation;
    const words = `“${a.words[i].text}” and “${b.words[j].text}”`;
    this.wordMatrix.details.textContent = `${words}: ${format(alignment.words[i][j])}`;
  }

  showBreakdown({ a, b, metric, tokens, truncated }) {
    const sum = (parts) => parts.reduce((total, part) => total + part.contribution, 0);
    const special = ({ tokens }) => tokens.filter((token) => token.word === null);
    const row = (name, cell) => make("tr", {}, make("th", { scope: "row" }, name),
      ...[a, b].map((sentence, i) => make("td", {}, cell(sentence, i))));
    const tokensUsed = (sentence, i) => (truncated[i] ? `${sentence.tokens.length} of ${tokens[i]}` : String(tokens[i]));
    find("#breakdown").replaceChildren(
      headerRow("contribution", "first", "second"),
      row("words", (sentence) => formatSigned(sum(sentence.words))),
      row("special tokens", (sentence) => formatSigned(sum(special(sentence)))),
      row(metric, (sentence) => format(sum(sentence.tokens))),
      row("tokens used", tokensUsed),
    );
  }

  showLinks({ a, b, alignment }) {
    const links = [...alignment.links].sort((x, y) => y.similarity - x.similarity);
    find("#links").replaceChildren(...links.map((link) => {
      const words = `${a.words[link.a].text} ~ ${b.words[link.b].text} `;
      return make("li", {}, words, make("b", {}, format(link.similarity)));
    }));
  }

  showLatents({ agree, disagree }) {
    const cell = (dominant) => {
      const words = dominant.words ? dominant.words.join(", ") : `class ${dominant.index}`;
      const share = `${Math.round(100 * dominant.share)}\u00a0%`;
      return make("td", {}, words, " ", make("span", { className: "quiet" }, share));
    };
    const row = ({ dim, contribution, a, b }) => make("tr", {}, make("th", { scope: "row" }, dim),
      make("td", {}, formatSigned(contribution)), cell(a), cell(b));
    const header = () => headerRow("dim", "contribution", "first", "second");
    find("#agree").replaceChildren(header(), ...agree.map(row));
    find("#disagree").replaceChildren(header(), ...disagree.map(row));
  }
}

// The table of words by words, with a caption if it lacks some.
function similarityTable({ rows, columns }, similarities) {
  const shown = columns.slice(0, MAX_TABLE);
  const cells = rows.slice(0, MAX_TABLE).map((word, i) =>
    [word, ...shown.map((_, j) => format(similarities[i][j], 2))]);
  const complete = Math.max(rows.length, columns.length) <= MAX_TABLE;
  return [["word", ...shown], cells, complete ? "" : `The first ${MAX_TABLE} words of each sentence`];
}

// The table of all words: their contributions, and the words that they are aligned with.
function contributionTable(explanation) {
  const rows = [["a", "b", "first"], ["b", "a", "second"]].flatMap(([own, other, name]) =>
    explanation[own].words.map((word, i) => {
      const link = explanation.alignment.links.find((candidate) => candidate[own] === i);
      const aligned = link ? [explanation[other].words[link[other]].text, format(link.similarity)] : ["none", ""];
      return [word.text, name, formatSigned(word.contribution), ...aligned];
    }));
  return [["word", "sentence", "contribution", "aligned with", "similarity"], rows];
}
