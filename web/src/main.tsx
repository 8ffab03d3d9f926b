// Starts the page: finds where answers come from, then draws.
import { render } from 'preact';
import { App } from './app';
import { Source } from './source';
import { Store } from './store';
import './base.css';
import './page.css';
import './tools.css';

const store = new Store(Source.ofPage());
// For the budgets' script: it reads counts, it changes nothing.
(window as unknown as { mhaStore: Store }).mhaStore = store;
render(<App store={store} />, document.getElementById('app') as HTMLElement);
void store.start();
