// The selected head, large: which one, how it is looked at, the picture, its colour bar, and one line that says in words what is under the
// pointer (and in a live region, a moment later).
import { useEffect, useRef } from 'preact/hooks';
import type { JSX } from 'preact';
import { gradientOf, weightPalette } from './colour';
import { DetailLinks } from './detail_links';
import { DetailMap } from './detail_map';
import { DetailMatrix } from './detail_matrix';
import { DetailTable } from './detail_table';
import { readout, useHeadView, type HeadView } from './head_view';
import { useTheme } from './hooks';
import { Segments } from './segments';
import type { Kind, View } from './state';
import type { Store } from './store';

export function Detail({ store }: { store: Store }): JSX.Element {
  const { view, problem } = useHeadView(store);
  const { state, data } = store;
  const long = data?.isLong(state.unit, data.run.layers[state.layer]) ?? false;
  const layer = data?.run.layers[state.layer];
  return (
    <section class="detail" aria-label="Selected head">
      <DetailBar store={store} long={long} />
      <Readout store={store} view={view} />
      {problem && <p class="note problem">{problem}</p>}
      {view?.note && <p class="note">{view.note}</p>}
      {store.isRemoved(state.layer, state.head) && <p class="note">This head was removed from the model: it has no weights, and nothing of it is added.</p>}
      {layer?.causal && state.view !== 'table' && (
        <p class="note">This layer is causal: no word can attend to a later one, and the hatched cells cannot exist.</p>
      )}
      {long && data ? <DetailMap store={store} data={data} /> : view ? <Picture store={store} view={view} /> : <div class="picture" />}
      <DetailLegend store={store} view={long ? null : view} />
    </section>
  );
}

function Picture({ store, view }: { store: Store; view: HeadView }): JSX.Element {
  if (store.state.view === 'table') return <DetailTable store={store} view={view} />;
  return store.state.view === 'matrix' ? <DetailMatrix store={store} view={view} /> : <DetailLinks store={store} view={view} />;
}

const kViews: { value: View; name: string }[] = [
  { value: 'links', name: 'links' },
  { value: 'matrix', name: 'matrix' },
  { value: 'table', name: 'table' },
];
const kKinds: { value: Kind; name: string; title: string }[] = [
  { value: 'raw', name: 'raw', title: 'Weights as they are' },
  { value: 'sinkless', name: 'no sinks', title: 'Special pieces (and the first, where causal) taken out, each row divided by what is left' },
  { value: 'norm', name: 'norm', title: 'Share of each word in what is added: weight times the length of its value after the output projection, each row divided by its sum' },
];

function DetailBar({ store, long }: { store: Store; long: boolean }): JSX.Element {
  const { layer, head, view, kind } = store.state;
  const about = store.data?.run.layers[layer];
  const kinds = store.info?.model && !store.state.tensors ? kKinds : kKinds.slice(0, 2);
  const plain = about?.name === `layer ${layer}` || !about?.name;
  return (
    <div class="bar">
      <h2>
        <span class="strong">{store.headName([layer, head])}</span>
        {!plain && <span class="quiet"> {about?.name}</span>}
      </h2>
      <span class="grow" />
      {!long && <Segments label="View" choices={kViews} value={view} onChange={(next) => store.update({ view: next })} />}
      {!long && <Segments label="Weights" choices={kinds} value={kind} onChange={(next) => store.update({ kind: next })} />}
    </div>
  );
}

/** What is under the pointer, in words: at once for eyes, once the pointer rests for the live region. */
function Readout({ store, view }: { store: Store; view: HeadView | null }): JSX.Element {
  const shown = useRef<HTMLParagraphElement>(null);
  const told = useRef<HTMLParagraphElement>(null);
  useEffect(() => {
    let asked = 0;
    let timer: ReturnType<typeof setTimeout> | undefined;
    const write = (): void => {
      asked = 0;
      const text = view ? readout(store, view) : '';
      if (shown.current && shown.current.firstChild) shown.current.firstChild.nodeValue = text || '\u00a0';
      clearTimeout(timer);
      timer = setTimeout(() => told.current && (told.current.textContent = text), 250);
    };
    write();
    const stop = store.hover.listen(() => (asked ||= requestAnimationFrame(write)));
    return () => {
      stop();
      cancelAnimationFrame(asked);
      clearTimeout(timer);
    };
  }, [store, view, store.state]);
  return (
    <>
      <p class="readout" dir="auto" ref={shown} aria-hidden="true">
        {'\u00a0'}
      </p>
      <p class="unseen" role="status" aria-live="polite" ref={told} />
    </>
  );
}

function DetailLegend({ store, view }: { store: Store; view: HeadView | null }): JSX.Element {
  const theme = useTheme();
  const most = view?.most ?? 1;
  const links = store.state.view === 'links' && view !== null;
  const kind = view?.removed ? 'sinks taken out; what they got is in the line above' : 'weight is not importance';
  const meaning = view?.signed ? 'difference of weights' : store.state.kind === 'norm' && view ? 'share of the length that each word adds' : kind;
  return (
    <div class="legend">
      {links && !view.signed ? (
        <LinkWidths most={most} />
      ) : (
        <>
          <span class="number">{view?.signed ? `−${most}` : 0}</span>
          <span class="ramp" style={{ background: gradientOf(view?.signed ? theme.signed : weightPalette(store.state)) }} />
          <span class="number">{view?.signed ? `+${most}` : most}</span>
        </>
      )}
      <span class="quiet" title={meaning}>
        {meaning}
      </span>
      <span class="grow" />
      {!links && !view?.signed && store.state.view !== 'table' && (
        <label class="check" title="Colours go by the root of the weight; the colour bar shows it">
          <input type="checkbox" checked={store.state.lift} onChange={() => void store.update({ lift: !store.state.lift }, 'replace')} /> lift small weights
        </label>
      )}
    </div>
  );
}

/** Lines as wide as links of those weights. */
function LinkWidths({ most }: { most: number }): JSX.Element {
  return (
    <>
      {[0.1, 0.5, 1].map((share) => (
        <span key={share} class="width">
          <i style={{ height: `${0.75 + 7 * share}px`, opacity: 0.15 + 0.75 * Math.sqrt(share) }} />
          <span class="number">{Math.round(share * most * 100) / 100}</span>
        </span>
      ))}
    </>
  );
}
