// Colour scales that remain distinguishable with any colour vision deficiency.

// Sequential: cividis, perceptually uniform in colour and in grey.
const CIVIDIS = [
  [0, 34, 78], [18, 53, 112], [59, 73, 108], [87, 93, 109], [112, 113, 115],
  [138, 134, 120], [165, 156, 116], [195, 179, 105], [225, 204, 85], [254, 232, 56],
];

// Diverging: orange for negative, white for 0, blue for positive.
const DIVERGING = [
  [179, 88, 6], [224, 130, 20], [253, 184, 99], [247, 247, 247], [146, 197, 222], [67, 147, 195], [33, 102, 172],
];

const STEPS = 255;

function interpolate(stops, share) {
  const position = share * (stops.length - 1);
  const low = Math.min(Math.floor(position), stops.length - 2);
  const colour = stops[low].map((start, i) => start + (stops[low + 1][i] - start) * (position - low));
  return [...colour.map(Math.round), 255];
}

// Precomputed, since a large heat map needs a million colours.
const scale = (stops) => Array.from({ length: STEPS + 1 }, (_, step) => interpolate(stops, step / STEPS));
const scales = { sequential: scale(CIVIDIS), diverging: scale(DIVERGING) };

const at = (colours, share) => colours[Math.round(Math.min(Math.max(share, 0), 1) * STEPS)];

// Map a value between `low` and `high` to a colour [r, g, b, 255].
export const sequential = (low, high) => (value) => at(scales.sequential, (value - low) / (high - low || 1));

// Map a value between -limit and limit to a colour [r, g, b, 255].
export const diverging = (limit) => (value) => at(scales.diverging, 0.5 + value / (2 * limit || 1));
