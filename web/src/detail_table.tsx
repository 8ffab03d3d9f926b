// The numbers of the selected head as an HTML table, for whoever cannot or will not read colours: all of a small one, else the rows of the
// active word and the strongest links.
import { useEffect, useReducer } from 'preact/hooks';
import type { JSX } from 'preact';
import type { UnitLabel } from './contract';
import { linksOf, weightText, type HeadView } from './head_view';
import { visible } from './scene';
import type { Store } from './store';

const kWhole = 20;
const kMostRows = 100;

export function DetailTable({ store, view }: { store: Store; view: HeadView }): JSX.Element {
  const [, again] = useReducer((n: number) => n + 1, 0);
  useEffect(() => store.hover.listen(() => again(0)), [store]);
  const { rows, columns } = view.matrix;
  return (
    <div class="picture scroller" tabIndex={0} role="region" aria-label="Weights as a table">
      {rows <= kWhole && columns <= kWhole ? <Whole store={store} view={view} /> : <Strongest store={store} view={view} />}
    </div>
  );
}

function Whole({ store, view }: { store: Store; view: HeadView }): JSX.Element {
  const { columns, values } = view.matrix;
  return (
    <table class="numbers">
      <caption>Rows attend, columns are attended to; – is what nobody may see{view.removed && ', or a sink'}.</caption>
      <thead>
        <tr>
          <td />
          {view.keys.map((unit, j) => (
            <th key={j} scope="col" dir="auto">
              {visible(unit.text)}
            </th>
          ))}
          {view.removed && <th scope="col">to sinks</th>}
        </tr>
      </thead>
      <tbody>
        {view.queries.map((unit, i) => (
          <tr key={i} class={i === store.active ? 'active' : ''}>
            <th scope="row" dir="auto">
              {visible(unit.text)}
            </th>
            {view.keys.map((_, j) => (
              <td key={j}>{Number.isNaN(values[i * columns + j]) ? '–' : weightText(values[i * columns + j], view.signed)}</td>
            ))}
            {view.removed && <td>{view.removed[i].toFixed(3)}</td>}
          </tr>
        ))}
      </tbody>
    </table>
  );
}

/** A unit and where it stands: a long text has many of a name. */
function Placed({ units, at }: { units: UnitLabel[]; at: number }): JSX.Element {
  return (
    <>
      <bdi>{visible(units[at].text)}</bdi> <span class="quiet">· {at}</span>
    </>
  );
}

function Strongest({ store, view }: { store: Store; view: HeadView }): JSX.Element {
  const { matrix } = view;
  const active = store.active;
  const links = linksOf(view, active >= 0 ? 1e6 : kMostRows)
    .reverse()
    .filter(([from]) => active < 0 || from === active)
    .slice(0, kMostRows);
  return (
    <>
      <p class="quiet" id="table-about">
        {active >= 0 ? (
          <>
            The strongest links of <Placed units={view.queries} at={active} />.
          </>
        ) : (
          `The ${links.length} strongest of ${matrix.rows} × ${matrix.columns} weights. Pin a word for its row; “save” has all of them.`
        )}
      </p>
      <table class="numbers wide" aria-describedby="table-about">
        <thead>
          <tr>
            <th scope="col">from</th>
            <th scope="col">to</th>
            <th scope="col">weight</th>
          </tr>
        </thead>
        <tbody>
          {links.map(([from, to, value]) => (
            <tr key={`${from} ${to}`}>
              <td dir="auto">
                <Placed units={view.queries} at={from} />
              </td>
              <td dir="auto">
                <Placed units={view.keys} at={to} />
              </td>
              <td class="number">{weightText(value, view.signed)}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </>
  );
}
