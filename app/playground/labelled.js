// The third tab: a file of labelled pairs, the agreement of scores with its labels, and a threshold.

import { post } from "./api.js";
import { Calibration } from "./calibration.js";
import { find, make, metricLabel } from "./common.js";
import { RequestError, UserError } from "./errors.js";
import { Evaluation } from "./evaluation.js";
import { checkScale, readPairs } from "./labels.js";
import { LiveResults } from "./live.js";
import { Scoring } from "./scoring.js";
import { connect, curl, modelField, pythonOfFile } from "./snippets.js";

const BATCH = 64; // pairs per request of the Python program

const count = (number) => number.toLocaleString("en");

export class LabelledTab {
  // `info` is the response of `/info`; `onChange` is called when the input changes.
  constructor(info, onChange) {
    this.onChange = onChange;
    this.metric = find("#labelled-metric");
    this.scale = [find("#scale-low"), find("#scale-high")];
    this.match = find("#match-label");
    this.progress = find("#scoring");
    this.button = find("#scoring button");
    this.evaluation = new Evaluation(find("#labelled .results"));
    this.live = new LiveResults(find("#labelled"), (signal) => this.compare(signal));
    this.file = this.pairs = this.scoring = null;
    this.complete = true; // whether the results are those of the input
    this.use(info);
    this.metric.addEventListener("change", () => this.changed(0));
    for (const input of [...this.scale, this.match]) input.addEventListener("input", () => this.changed(400));
    this.button.addEventListener("click", () => this.stopOrContinue());
    this.acceptFiles(find("#file"), find("#drop"));
    connect(find("#labelled .copies"), () => this.commands());
  }

  // Score with another model from now on.
  use(info) {
    const [chosen, other] = [this.metric.value, this.info?.fingerprint !== info.fingerprint];
    this.info = info;
    this.calibration = Calibration.of(info);
    const option = (metric) => make("option", { value: metric }, metricLabel(metric, info));
    this.metric.replaceChildren(...info.metrics.map(option));
    if (info.metrics.includes(chosen)) this.metric.value = chosen;
    if (!other) return;
    this.live.stop();
    this.scoring = null;
    this.progress.hidden = this.live.results.hidden = true;
    this.complete = !this.file;
  }

  // The input, for the URL. Not the file, which may be large.
  fields() {
    return { metric: this.metric.value };
  }

  fill(fields) {
    const metric = fields.get("metric");
    if (!this.info.metrics.includes(metric) || metric === this.metric.value) return;
    this.metric.value = metric;
    this.complete = !this.file;
  }

  open() {
    if (!this.complete || !this.file) this.live.run();
  }

  acceptFiles(input, zone) {
    input.addEventListener("click", () => (input.value = "")); // the same file, edited, is a change
    input.addEventListener("change", () => this.useFile(input.files[0]));
    const hasFiles = (event) => event.dataTransfer.types.includes("Files");
    // Files dropped beside the zone would otherwise replace the page.
    for (const name of ["dragover", "drop"]) {
      addEventListener(name, (event) => hasFiles(event) && event.preventDefault());
    }
    zone.addEventListener("dragover", (event) => zone.classList.toggle("over", hasFiles(event)));
    for (const name of ["dragleave", "drop"]) zone.addEventListener(name, () => zone.classList.remove("over"));
    zone.addEventListener("drop", (event) => {
      if (!hasFiles(event)) return;
      input.files = event.dataTransfer.files;
      this.useFile(input.files[0]);
    });
  }

  useFile(file) {
    if (!file) return; // the dialog was cancelled
    this.file = file;
    this.pairs = this.scoring = null;
    this.progress.hidden = this.live.results.hidden = true;
    find("#labelled .error").textContent = "";
    this.changed(0);
  }

  changed(delay) {
    this.onChange();
    if (!this.file) return;
    this.complete = false;
    if (delay) this.live.schedule(delay);
    else this.live.run();
  }

  stopOrContinue() {
    if (this.button.textContent !== "Stop") {
      this.live.run();
      return;
    }
    this.live.stop();
    this.button.textContent = "Continue";
  }

  async compare(signal) {
    if (!this.file) return "Choose a file to see results.";
    if (!this.pairs) {
      const pairs = await readPairs(this.file, this.info.max_characters);
      if (signal.aborted) return "";
      this.pairs = pairs;
      this.setScale();
    }
    const labels = this.labels();
    this.scoring ??= new Scoring(this.pairs, this.info);
    await this.score(signal);
    if (signal.aborted) return "";
    const answers = await this.evaluate(labels, signal);
    if (signal.aborted) return "";
    this.live.results.hidden = false; // before drawing, which needs the width
    this.evaluation.show({ ...answers, ...labels, pairs: this.pairs, info: this.info, calibration: this.calibration });
    this.complete = true;
    return "";
  }

  // Suggest a scale for ratings: the model's, or that of the labels.
  setScale() {
    const { binary, labels } = this.pairs;
    find("#label-scale").hidden = binary;
    if (binary) return;
    const range = labels.reduce(([low, high], label) => [Math.min(low, label), Math.max(high, label)], [Infinity, -Infinity]);
    const [low, high] = this.calibration?.kind === "rating" ? this.calibration.scale : range;
    const scale = low <= range[0] && range[1] <= high ? [low, high] : range;
    this.scale.forEach((input, i) => (input.value = scale[i]));
    this.match.value = (scale[0] + scale[1]) / 2;
  }

  // The scale of the labels, null for 0 and 1, and the labels as 0 and 1.
  labels() {
    const { binary, labels } = this.pairs;
    if (binary) return { scale: null, matches: labels, match: null };
    const scale = this.scale.map((input) => input.valueAsNumber);
    checkScale(this.pairs, scale);
    const match = this.match.valueAsNumber;
    if (Number.isNaN(match)) throw new UserError("Enter the lowest rating of a match.");
    return { scale, match, matches: labels.map((label) => Number(label >= match)) };
  }

  async score(signal) {
    const { scoring } = this;
    this.progress.hidden = scoring.done === scoring.total;
    this.button.textContent = "Stop";
    try {
      await scoring.run(signal, () => this.showProgress());
    } catch (error) {
      if (!signal.aborted && !error.retryAfter) this.button.textContent = "Continue";
      throw error;
    }
  }

  showProgress() {
    const { done, total } = this.scoring;
    const bar = find("progress", this.progress);
    Object.assign(bar, { max: total, value: done });
    find("[role=status]", this.progress).textContent = `${count(done)} of ${count(total)} pairs scored`;
    if (done) find("#labelled .error").textContent = ""; // of a request that was repeated
    this.progress.hidden = done === total;
  }

  // Requests to `/evaluate`: for the labels, and for matches if labels are ratings.
  requests({ scale, matches }) {
    const { metric, pairs, scoring } = this;
    // More digits would only look like more precision.
    const scores = Array.from(scoring.scores[metric.value], (score) => Math.round(1e6 * score) / 1e6);
    const request = { metric: metric.value, scores };
    if (!scale) return [{ ...request, labels: pairs.labels }];
    return [{ ...request, scale, labels: pairs.labels }, { ...request, labels: matches }];
  }

  async evaluate(labels, signal) {
    const { model } = this.info;
    const [first, second] = this.requests(labels);
    const evaluation = await post("evaluate", { model, ...first }, signal);
    if (!second) return { evaluation, binary: evaluation, problem: "" };
    try {
      return { evaluation, binary: await post("evaluate", { model, ...second }, signal), problem: "" };
    } catch (error) {
      // Too few or too many matches for a threshold: show the other results.
      if (!(error instanceof RequestError) || error.status !== 400) throw error;
      return { evaluation, binary: null, problem: error.message };
    }
  }

  // The commands that return what the page shows; null without results.
  commands() {
    const { info, metric, pairs } = this;
    if (this.live.results.hidden || !this.complete) return null;
    const labels = this.labels();
    const model = modelField(info);
    const batch = Math.max(1, Math.min(BATCH, Math.floor(info.max_client_batch_size / 2)));
    return {
      curl: () => this.requests(labels).map((request) => curl("evaluate", { ...model, ...request })).join("\n"),
      python: () => pythonOfFile(pairs, { metric: metric.value, model, batch, ...labels }),
    };
  }
}
