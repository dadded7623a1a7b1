// Colours that people with any kind of colour vision can tell apart.

// From little to much: stops of cividis, which is as even in grey as it is in colour.
const CIVIDIS = [
  [0, 34, 78], [18, 53, 112], [59, 73, 108], [87, 93, 109], [112, 113, 115],
  [138, 134, 120], [165, 156, 116], [195, 179, 105], [225, 204, 85], [254, 232, 56],
];

// From less to more: orange, nothing, blue.
const DIVERGING = [
  [179, 88, 6], [224, 130, 20], [253, 184, 99], [247, 247, 247], [146, 197, 222], [67, 147, 195], [33, 102, 172],
];

const STEPS = 255;

function between(stops, share) {
  const place = share * (stops.length - 1);
  const low = Math.min(Math.floor(place), stops.length - 2);
  const colour = stops[low].map((start, i) => start + (stops[low + 1][i] - start) * (place - low));
  return [...colour.map(Math.round), 255];
}

// Found once, since a large map asks for a million.
const scale = (stops) => Array.from({ length: STEPS + 1 }, (_, step) => between(stops, step / STEPS));
const scales = { sequential: scale(CIVIDIS), diverging: scale(DIVERGING) };

const at = (colours, share) => colours[Math.round(Math.min(Math.max(share, 0), 1) * STEPS)];

// A value's colour [r, g, b, 255] between the least and the most.
export const sequential = (low, high) => (value) => at(scales.sequential, (value - low) / (high - low || 1));

// The same about nought.
export const diverging = (most) => (value) => at(scales.diverging, 0.5 + value / (2 * most || 1));
