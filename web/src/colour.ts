// Colours of numbers: viridis for weights (0 to 1, fixed), blue to orange through the background for signed differences. Look-up tables
// of 256 colours, so that a cell costs one read. The theme's own colours are CSS variables, read here for canvases.
import { interpolateRgbBasis } from 'd3-interpolate';
import { interpolateViridis } from 'd3-scale-chromatic';

export interface Palette {
  /** 256 colours as 0xAABBGGRR, what a little-endian ImageData wants. */
  words: Uint32Array;
  css: string[];
}

const kSteps = 256;

function paletteOf(colour: (t: number) => string): Palette {
  const css = Array.from({ length: kSteps }, (_, i) => colour(i / (kSteps - 1)));
  const words = Uint32Array.from(css, (text) => {
    const [r, g, b] = parse(text);
    return ((255 << 24) | (b << 16) | (g << 8) | r) >>> 0;
  });
  return { words, css };
}

function parse(text: string): number[] {
  if (text.startsWith('#')) return [1, 3, 5].map((i) => parseInt(text.slice(i, i + 2), 16));
  return (text.match(/[\d.]+/g) ?? ['0', '0', '0']).slice(0, 3).map((n) => Math.round(Number(n)));
}

export const kViridis = paletteOf(interpolateViridis);
/** The same colours with small weights lifted: by the root, which the colour bar shows. */
const kViridisLifted = paletteOf((t) => interpolateViridis(Math.sqrt(t)));

export function weightPalette(state: { lift: boolean }): Palette {
  return state.lift ? kViridisLifted : kViridis;
}
const kSignedLight = paletteOf(interpolateRgbBasis(['#0b4a8f', '#3f8fd0', '#a9cdea', '#f4f4f2', '#f6c79a', '#e08a35', '#9c4a00']));
const kSignedDark = paletteOf(interpolateRgbBasis(['#8fc7ff', '#3a86c8', '#1f4a70', '#202226', '#70431a', '#c97a2c', '#ffc27d']));

export interface Theme {
  dark: boolean;
  ink: string;
  quiet: string;
  line: string;
  ground: string;
  accent: string;
  signed: Palette;
  font: string;
}

const kDark = '(prefers-color-scheme: dark)';

export function readTheme(): Theme {
  const style = getComputedStyle(document.documentElement);
  const of = (name: string): string => style.getPropertyValue(name).trim();
  const dark = matchMedia(kDark).matches;
  return {
    dark,
    ink: of('--ink'),
    quiet: of('--quiet'),
    line: of('--line'),
    ground: of('--ground'),
    accent: of('--accent'),
    signed: dark ? kSignedDark : kSignedLight,
    font: of('--font'),
  };
}

/** The theme of files that are kept: light, whatever the screen is. */
export const kPaper: Theme = {
  dark: false,
  ink: '#1b1d21',
  quiet: '#5b6069',
  line: '#d9dbdf',
  ground: '#ffffff',
  accent: '#b01e5b',
  signed: kSignedLight,
  font: 'system-ui, sans-serif',
};

export function onThemeChange(listener: () => void): () => void {
  const query = matchMedia(kDark);
  query.addEventListener('change', listener);
  return () => query.removeEventListener('change', listener);
}

/** The place of a number in a palette: `least` to `most`, NaN gives -1. */
export function stepOf(value: number, least: number, most: number): number {
  if (Number.isNaN(value)) return -1;
  const t = most > least ? (value - least) / (most - least) : 0;
  return Math.max(0, Math.min(kSteps - 1, Math.round(t * (kSteps - 1))));
}

/** A palette as a CSS gradient, for a colour bar. */
export function gradientOf(palette: Palette): string {
  const stops = Array.from({ length: 17 }, (_, i) => palette.css[Math.min(kSteps - 1, i * 16)]);
  return `linear-gradient(to right, ${stops.join(', ')})`;
}
