// The relation finder: pick A, then B, and C if you like; heads ranked by the weight from A to B, by the way back, by the contrast with C,
// by the chain A, B, C, or by the lift: the weight less what is usual at that distance (times: over it).
import { useEffect, useMemo, useState } from 'preact/hooks';
import type { JSX } from 'preact';
import { distanceOf, findRelations, ranked, weightsOf, type Found } from './finder';
import { visible } from './scene';
import type { FindBy } from './state';
import type { Store } from './store';
import type { Table } from './table';

const kShown = 40;
const kMostOptions = 150;

const kRankings: { value: FindBy; name: string; needsC?: boolean }[] = [
  { value: 'weight', name: 'A → B' },
  { value: 'back', name: 'B → A' },
  { value: 'lift', name: 'lift: A → B − usual' },
  { value: 'contrast', name: 'A → B − A → C', needsC: true },
  { value: 'chain', name: 'A → B → C', needsC: true },
];

/** Usual weights, asked for once; null until they are there or where there are none. */
function useUsual(store: Store): Table | null {
  const [usual, set] = useState<Table | null>(null);
  useEffect(() => {
    if (store.info?.model) store.source.table('/api/usual').then(set, () => set(null));
  }, [store.info]);
  return usual;
}

export function PanelFind({ store }: { store: Store }): JSX.Element {
  const usual = useUsual(store);
  const { a, b, c, by, unit } = store.state;
  const { data } = store;
  const words = unit === 'word' && !store.state.tensors ? usual : null;
  const found = useMemo(() => {
    if (!data || a < 0 || b < 0) return [];
    const heads = data.run.layers.map((layer) => layer.heads);
    const distance = data.self ? distanceOf(data.queries(unit), a, b) : NaN;
    const exact = data.exactAt(unit, [0, 0], a, b) !== undefined;
    const all = findRelations(heads, weightsOf(data, store.state), { a, b, c, distance, usual: words, exact });
    return ranked(all.filter((one) => !store.isRemoved(...one.head)), by);
  }, [store.version, a, b, c, by, words]);
  return (
    <div class="panel">
      <div class="picks">
        <Pick store={store} name="a" label="A" hint="from" />
        <Pick store={store} name="b" label="B" hint="to" />
        <Pick store={store} name="c" label="C" hint="optional" />
      </div>
      <label class="rank">
        Rank by{' '}
        <select value={by} onChange={(event) => store.update({ by: event.currentTarget.value as FindBy })}>
          {kRankings.map((one) => (
            <option key={one.value} value={one.value} disabled={(one.needsC && c < 0) || (one.value === 'lift' && !words)}>
              {one.name}
            </option>
          ))}
        </select>
      </label>
      {found.length ? <Results store={store} found={found} /> : <Readings store={store} />}
    </div>
  );
}

function Readings({ store }: { store: Store }): JSX.Element {
  const long = store.data?.isLong(store.state.unit);
  return (
    <p class="hint">
      {long
        ? 'This text is too long for its tables to be sent: pin a word, or look at the map.'
        : 'Which heads link two words? Choose A and B, or pin a word and press / to start from it.'}
    </p>
  );
}

function Pick({ store, name, label, hint }: { store: Store; name: 'a' | 'b' | 'c'; label: string; hint: string }): JSX.Element {
  const { data, state } = store;
  const units = data ? (name === 'a' ? data.queries(state.unit) : data.keys(state.unit)) : [];
  const at = state[name];
  const choose = (value: number): void => {
    const patch = { [name]: value } as Partial<typeof state>;
    if (name === 'c' && value < 0 && (state.by === 'contrast' || state.by === 'chain')) patch.by = 'weight';
    if (name === 'c' && value >= 0 && state.by === 'weight') patch.by = 'contrast';
    store.update(patch);
  };
  if (units.length > kMostOptions) {
    return (
      <label title={units[at]?.text}>
        <b>{label}</b>
        <input
          id={`find-${name}`}
          type="number"
          min={0}
          max={units.length - 1}
          placeholder={hint}
          value={at < 0 ? '' : at}
          onChange={(event) => choose(event.currentTarget.value === '' ? -1 : Number(event.currentTarget.value))}
        />
        <bdi class="picked">{at < 0 ? '' : visible(units[at]?.text ?? '')}</bdi>
      </label>
    );
  }
  return (
    <label>
      <b>{label}</b>
      <select id={`find-${name}`} dir="auto" value={at} onChange={(event) => choose(Number(event.currentTarget.value))}>
        <option value={-1}>{hint}</option>
        {units.map((unit, i) => (
          <option key={i} value={i}>
            {visible(unit.text).slice(0, 40)} · {i}
          </option>
        ))}
      </select>
    </label>
  );
}

const percent = (value: number): string => (Number.isFinite(value) ? value.toFixed(2).replace('-', '−') : '–');

function Results({ store, found }: { store: Store; found: Found[] }): JSX.Element {
  const { layer, head, by, a } = store.state;
  const third = by === 'chain' || by === 'contrast' ? by : null;
  return (
    <table class="found">
      <thead>
        <tr>
          <th scope="col">head</th>
          <th scope="col">A → B</th>
          <th scope="col">B → A</th>
          {third ? (
            <th scope="col">{third === 'contrast' ? '− A → C' : 'least'}</th>
          ) : (
            <>
              <th scope="col" title="A → B less what this head usually gives at that distance">
                lift
              </th>
              <th scope="col" title="A → B over what this head usually gives at that distance">
                times
              </th>
            </>
          )}
        </tr>
      </thead>
      <tbody>
        {found.slice(0, kShown).map((one) => {
          const chosen = one.head[0] === layer && one.head[1] === head;
          return (
            <tr key={one.head.join()} class={chosen ? 'active' : ''} onClick={() => store.update({ layer: one.head[0], head: one.head[1], pin: a })}>
              <th scope="row">
                <button aria-pressed={chosen}>{store.headName(one.head)}</button>
              </th>
              <td>
                <i class="spark" style={{ width: `${Math.max(0, Math.min(1, one.weight || 0)) * 40}px` }} />
                {percent(one.weight)}
              </td>
              <td>{percent(one.back)}</td>
              {third ? (
                <td>{percent(one[third])}</td>
              ) : (
                <>
                  <td>{percent(one.lift)}</td>
                  <td>{Number.isFinite(one.times) ? `${one.times.toFixed(1)}×` : '–'}</td>
                </>
              )}
            </tr>
          );
        })}
      </tbody>
    </table>
  );
}
