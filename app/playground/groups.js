// Groups of near-duplicates, an order of sentences, and default thresholds, from similarities [N * N].

// Group indices: each ungrouped one takes all later ones that are similar to it, so that the first
// can represent its group. Larger groups come first.
export function group(count, similarities, threshold) {
  const grouped = new Set();
  const groups = [];
  for (let i = 0; i < count; i += 1) {
    if (grouped.has(i)) continue;
    const members = [i];
    for (let j = i + 1; j < count; j += 1) {
      if (!grouped.has(j) && similarities[i * count + j] >= threshold) members.push(j);
    }
    members.forEach((index) => grouped.add(index));
    groups.push(members);
  }
  return groups.sort((x, y) => y.length - x.length);
}

// Order indices so that similar ones are neighbours: next is always the one that is most similar to
// any before it. That keeps clusters together whatever the threshold (Prim's algorithm).
export function orderBySimilarity(count, similarities) {
  const order = [];
  const best = new Float64Array(count).fill(-Infinity); // similarity to the nearest ordered one
  const ordered = new Uint8Array(count);
  for (let next = 0; order.length < count; ) {
    order.push(next);
    ordered[next] = 1;
    let nearest = -1;
    for (let i = 0; i < count; i += 1) {
      if (ordered[i]) continue;
      best[i] = Math.max(best[i], similarities[next * count + i]);
      if (nearest < 0 || best[i] > best[nearest]) nearest = i;
    }
    next = nearest;
  }
  return order;
}

// The values of all pairs, i < j.
export function* pairValues(count, values) {
  for (let i = 0; i < count; i += 1) {
    for (let j = i + 1; j < count; j += 1) yield values[i * count + j];
  }
}

// The positions of the `limit` most similar pairs, as [i, j].
export function mostSimilar(count, similarities, limit) {
  const positions = [];
  for (let i = 0; i < count; i += 1) {
    for (let j = i + 1; j < count; j += 1) positions.push(i * count + j);
  }
  positions.sort((x, y) => similarities[y] - similarities[x]);
  return positions.slice(0, limit).map((position) => [Math.floor(position / count), position % count]);
}

// A threshold that `reached` pairs reach; just above all pairs if that is 0.
export function thresholdReachedBy(reached, values) {
  const sorted = Float64Array.from(values).sort();
  if (reached > 0) return sorted[sorted.length - reached];
  return Math.floor(1000 * sorted.at(-1) + 1) / 1000;
}
