// What the page shows, as one plain value, and its form in the address: everything that is not a default is in the hash, so a link shows
// what its sender saw. Pure; store.ts holds the current one.
import type { Change, Head, UnitKind } from './contract';

export type View = 'links' | 'matrix' | 'table';
export type Kind = 'raw' | 'sinkless' | 'norm';
export type FindBy = 'weight' | 'contrast' | 'lift' | 'chain' | 'back';
export type Panel = 'find' | 'change' | 'compare';

export interface State {
  text: string;
  /** A run of a tensors file, by its id; '' = the text is computed. */
  tensors: string;
  unit: UnitKind;
  layer: number;
  head: number;
  /** The pinned unit (a query), -1 = none. */
  pin: number;
  view: View;
  kind: Kind;
  /** What colours the atlas: 'row', or a measure's name, 'effect', 'change'. */
  atlas: string;
  sorted: boolean;
  /** Small weights are lifted: colours go by the root. */
  lift: boolean;
  panel: Panel;
  a: number;
  b: number;
  c: number;
  by: FindBy;
  zeroed: Head[];
  mean: Head[];
  hidden: number[];
  temperature: number;
  /** '' = nothing is compared, 'before' = the run without changes, 'text' = `second`. */
  against: '' | 'before' | 'text';
  second: string;
  /** Heads and layers are counted from 1 on the page. */
  one: boolean;
  /** Zoom of the matrix: factor, and the first query and key in view. */
  zoom: [number, number, number];
}

export const kDefaults: State = {
  text: '',
  tensors: '',
  unit: 'word',
  layer: 0,
  head: 0,
  pin: -1,
  view: 'links',
  kind: 'raw',
  atlas: 'row',
  sorted: false,
  lift: false,
  panel: 'find',
  a: -1,
  b: -1,
  c: -1,
  by: 'weight',
  zeroed: [],
  mean: [],
  hidden: [],
  temperature: 1,
  against: '',
  second: '',
  one: false,
  zoom: [1, 0, 0],
};

const kChoices: Partial<Record<keyof State, string[]>> = {
  unit: ['word', 'piece'],
  view: ['links', 'matrix', 'table'],
  kind: ['raw', 'sinkless', 'norm'],
  panel: ['find', 'change', 'compare'],
  by: ['weight', 'contrast', 'lift', 'chain', 'back'],
  against: ['', 'before', 'text'],
};

const writeHeads = (heads: Head[]): string => heads.map(([layer, head]) => `${layer}.${head}`).join(',');

function readNumbers(text: string, least: number): number[] {
  return text
    .split(',')
    .map(Number)
    .filter((n) => Number.isFinite(n) && n >= least);
}

function readHeads(text: string): Head[] {
  const heads = text.split(',').map((pair) => pair.split('.').map(Number));
  return heads.filter((pair) => pair.length === 2 && pair.every((n) => Number.isInteger(n) && n >= 0)) as Head[];
}

/** The hash, without '#'. */
export function encodeState(state: State): string {
  const out = new URLSearchParams();
  for (const key of Object.keys(kDefaults) as (keyof State)[]) {
    const value = state[key];
    const text = key === 'zeroed' || key === 'mean' ? writeHeads(value as Head[]) : String(value === true ? 1 : value);
    const usual = kDefaults[key];
    if (text !== (Array.isArray(usual) ? usual.join(',') : String(usual === true ? 1 : usual))) out.set(key, text);
  }
  return out.toString();
}

/** The state a hash stands for; what it does not say, or says wrongly, is a default. */
export function decodeState(hash: string): State {
  const given = new URLSearchParams(hash.replace(/^#/, ''));
  const state: Record<string, unknown> = { ...kDefaults };
  for (const [key, text] of given) {
    if (!Object.hasOwn(kDefaults, key)) continue;
    const usual = kDefaults[key as keyof State];
    if (key === 'zeroed' || key === 'mean') state[key] = readHeads(text);
    else if (key === 'hidden') state[key] = readNumbers(text, 0).filter(Number.isInteger);
    else if (key === 'zoom') state[key] = readZoom(text);
    else if (key === 'temperature') state[key] = Number(text) > 0 ? Number(text) : 1;
    else if (typeof usual === 'boolean') state[key] = text === '1';
    else if (typeof usual === 'number') state[key] = /^-?\d{1,9}$/.test(text) ? Math.max(Number(text), -1) : usual;
    else state[key] = kChoices[key as keyof State]?.includes(text) === false ? usual : text;
  }
  state.layer = Math.max(state.layer as number, 0);
  state.head = Math.max(state.head as number, 0);
  return state as unknown as State;
}

function readZoom(text: string): [number, number, number] {
  const numbers = readNumbers(text, 0);
  return numbers.length === 3 && numbers[0] >= 1 ? (numbers as [number, number, number]) : [1, 0, 0];
}

/** What a run is asked to change, without what is not changed; undefined = nothing. */
export function changeOf(state: State): Change | undefined {
  const change: Change = {};
  if (state.zeroed.length) change.zeroed = state.zeroed;
  if (state.mean.length) change.mean = state.mean;
  if (state.hidden.length) change.hidden = state.hidden;
  if (state.temperature !== 1) change.temperature = state.temperature;
  return Object.keys(change).length ? change : undefined;
}
