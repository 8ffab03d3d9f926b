// The page: text, sentence, atlas and panels on the left, the selected head on the right.
import { useEffect, useState } from 'preact/hooks';
import type { JSX } from 'preact';
import { Atlas } from './atlas';
import { Detail } from './detail';
import { HelpDialog, SaveDialog } from './dialogs';
import { Header, Notes } from './header';
import { useStore } from './hooks';
import { listenToKeys } from './keyboard';
import { PanelChange } from './panel_change';
import { PanelCompare } from './panel_compare';
import { PanelFind } from './panel_find';
import type { Panel } from './state';
import type { Store } from './store';
import { Strip } from './strip';

const kPanels: { value: Panel; name: string }[] = [
  { value: 'find', name: 'Find' },
  { value: 'change', name: 'Intervene' },
  { value: 'compare', name: 'Compare' },
];

export function App({ store }: { store: Store }): JSX.Element {
  useStore(store);
  const [dialog, setDialog] = useState<'' | 'save' | 'help'>('');
  useEffect(() => listenToKeys(store, setDialog), [store]);
  const close = (): void => setDialog('');
  return (
    <div class={store.busy ? 'page busy' : 'page'}>
      <Header store={store} open={setDialog} />
      <Notes store={store} />
      <Strip store={store} side="query" />
      {store.data && !store.data.self && <Strip store={store} side="key" />}
      <main>
        <div class="side">
          <Atlas store={store} />
          <Panels store={store} />
        </div>
        <Detail store={store} />
      </main>
      {dialog === 'save' && store.data && <SaveDialog store={store} close={close} />}
      {dialog === 'help' && <HelpDialog store={store} close={close} />}
    </div>
  );
}

/** Tabs as the W3C APG has them: one tab stop, arrows choose. */
function Panels({ store }: { store: Store }): JSX.Element {
  const { panel } = store.state;
  const at = kPanels.findIndex((one) => one.value === panel);
  const onKeyDown = (event: KeyboardEvent): void => {
    const by = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!by) return;
    const next = kPanels[(at + by + kPanels.length) % kPanels.length].value;
    void store.update({ panel: next }, 'replace');
    event.preventDefault();
    event.stopPropagation();
    requestAnimationFrame(() => document.getElementById(`tab-${next}`)?.focus());
  };
  return (
    <section class="panels" aria-label="Tools">
      <div class="tabs" role="tablist" aria-label="Tools" onKeyDown={onKeyDown}>
        {kPanels.map(({ value, name }) => (
          <button
            key={value}
            id={`tab-${value}`}
            role="tab"
            aria-selected={value === panel}
            aria-controls="tool"
            tabIndex={value === panel ? 0 : -1}
            onClick={() => void store.update({ panel: value }, 'replace')}
          >
            {name}
          </button>
        ))}
      </div>
      <div id="tool" role="tabpanel" aria-labelledby={`tab-${panel}`} class="tool" tabIndex={0}>
        {panel === 'find' ? <PanelFind store={store} /> : panel === 'change' ? <PanelChange store={store} /> : <PanelCompare store={store} />}
      </div>
    </section>
  );
}
