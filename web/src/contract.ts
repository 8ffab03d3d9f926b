// The shapes of what the server answers (docs/http-api.md), as types. Every part of the page that reads an answer uses these; nothing here
// computes or draws.

export interface Example {
  text: string;
  readings: { name: string; links: [string, string][] }[];
}

export interface MeasureInfo {
  name: string;
  meaning: string;
  share: boolean;
}

export interface ModelInfo {
  name: string;
  family: string;
  layers: number;
  heads: number;
  head_dim: number;
  max_positions: number;
  /** Heads that the model no longer has. */
  removed?: Head[];
}

export interface Info {
  version: string;
  model: ModelInfo | null;
  tensors: { file: string; runs: { run: string; name: string }[] } | null;
  examples: Example[];
  measures: MeasureInfo[];
  limits: { body: number; tokens: number; seconds: number };
}

export interface Piece {
  text: string;
  word: number;
  special: boolean;
}

export interface Word {
  text: string;
  first: number;
  count: number;
  special: boolean;
}

export interface Units {
  pieces: Piece[];
  words: Word[];
}

export interface Layer {
  name: string;
  heads: number;
  kv_heads: number;
  q_len: number;
  kv_len: number;
  causal: boolean;
  window: number | [number, number] | null;
  align?: string | number | null;
}

export type Head = [layer: number, head: number];

export interface Change {
  zeroed?: Head[];
  mean?: Head[];
  hidden?: number[];
  temperature?: number;
}

export interface Run {
  run: string;
  text: string;
  cut: { read: number; of: number } | null;
  layers: Layer[];
  queries: Units;
  keys: Units | null;
  output: { cosine: number } | null;
  changed: Change | null;
  milliseconds: number;
}

export type UnitKind = 'word' | 'piece';
export type WeightKind = 'weight' | 'norm';

/** What a unit's list has in common for words and pieces: the text to show and whether it is a special one such as [CLS]. */
export interface UnitLabel {
  text: string;
  special: boolean;
}

export function unitsOf(units: Units, kind: UnitKind): UnitLabel[] {
  return kind === 'word' ? units.words : units.pieces;
}
