// The page: who looks, which view, and whether the server is there.

import { render } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { onAnnounce } from "./announce";
import { setToken, token } from "./api";
import * as cluster from "./cluster";
import { called } from "./format";
import * as server from "./server";
import { connect, disconnect, type Tables, useShown } from "./store";
import "./style.css";

type View = { title: string; show: (id: string) => preact.ComponentChildren };

const SERVER: Record<string, View> = {
  "": { title: "Devices and leases", show: () => <server.Overview /> },
  sessions: { title: "Sessions", show: () => <server.Sessions /> },
  queue: { title: "Queue", show: () => <server.Queue /> },
  tenants: { title: "Tenants", show: () => <server.Tenants /> },
  refusals: { title: "Refusals", show: () => <server.Events refusals /> },
  events: { title: "Events", show: () => <server.Events /> },
  lease: { title: "Lease", show: (id) => <server.Lease key={id} id={id} /> },
  session: { title: "Session", show: (id) => <server.Session key={id} id={id} /> },
};
const MANAGER: Record<string, View> = {
  "": { title: "Nodes and cards", show: () => <cluster.Overview /> },
  queue: { title: "Queue", show: () => <cluster.Queue /> },
  paths: { title: "Paths", show: () => <cluster.Paths /> },
  refusals: { title: "Refusals", show: () => <cluster.Events refusals /> },
  events: { title: "Events", show: () => <cluster.Events /> },
  request: { title: "Request", show: (id) => <cluster.Request key={id} id={id} /> },
};
// The views of one thing, and those that list such things.
const LISTED_IN: Record<string, string> = { lease: "", session: "sessions", request: "" };

function useRoute(): [string, string] {
  const [hash, set] = useState(location.hash);
  useEffect(() => {
    const moved = () => set(location.hash);
    addEventListener("hashchange", moved);
    return () => removeEventListener("hashchange", moved);
  }, []);
  const [, view = "", id = ""] = hash.split("/");
  return [view, decoded(id)];
}

function decoded(id: string): string {
  try {
    return decodeURIComponent(id);
  } catch {
    return id; // A link that somebody has cut.
  }
}

// What people call the thing that a view is about.
function nameOf(tables: Tables, view: string, id: string): string {
  const lease = view === "lease" ? tables.leases?.[id] : undefined;
  return lease ? called(lease, id) : id;
}

function Page() {
  const { who, link, why, tables } = useShown();
  const [view, id] = useRoute();
  const heading = useRef<HTMLHeadingElement>(null);
  const first = useRef(true);
  const views = who?.kind === "manager" ? MANAGER : SERVER;
  const name = Object.hasOwn(views, view) ? view : "";
  const found = views[name];
  const title = name in LISTED_IN ? `${found.title} ${nameOf(tables, name, id)}` : found.title;
  const listed = LISTED_IN[name] ?? name;

  useEffect(() => void connect(), []);
  useEffect(() => void (document.title = `${title} · ${who?.title ?? "rgpu"}`), [title, who?.title]);
  useEffect(() => {
    if (first.current) first.current = false;
    else heading.current?.focus();
  }, [view, id]);

  return (
    <>
      <a class="skip" href="#main" onClick={(event) => (event.preventDefault(), heading.current?.focus())}>Skip to the content</a>
      <header>
        <p class="brand">rgpu {who && <span>{who.kind} on {who.title}</span>}</p>
        <LinkState link={link} />
        {who && <Who />}
      </header>
      <Said />
      {link === "locked" ? (
        <SignIn why={why} />
      ) : (
        <>
          <nav class="views" aria-label="Views">
            {Object.entries(views).filter(([key]) => !(key in LISTED_IN)).map(([key, one]) => (
              <a href={`#/${key}`} aria-current={key === name ? "page" : key === listed ? "true" : undefined}>{one.title}</a>
            ))}
          </nav>
          <main id="main">
            <div class="head">
              <h1 ref={heading} tabIndex={-1}>{title}</h1>
              {who?.kind === "server" && name === "" && <server.Operate />}
            </div>
            {link === "lost" && <p class="note bad" role="alert">No connection: {why}. What is shown is old; the page tries again.</p>}
            {who ? found.show(id) : <p class="note">Connecting …</p>}
          </main>
        </>
      )}
      <footer>{who && <span>rgpu {who.release}</span>} <Theme /></footer>
    </>
  );
}

function LinkState({ link }: { link: string }) {
  const words = { connecting: "connecting", live: "live", lost: "no connection", locked: "signed out" }[link];
  return <p class={`link ${link}`} role="status">{words}</p>;
}

function Who() {
  const { who } = useShown();
  const name = who!.tenant ?? "this machine's user";
  return (
    <p class="who">
      {name}{who!.operator && ", operator"}{" "}
      {token() ? (
        <button type="button" onClick={() => (setToken(""), void connect())}>Sign out</button>
      ) : (
        <SignInAs />
      )}
    </p>
  );
}

function SignInAs() {
  const [open, setOpen] = useState(false);
  return open ? (
    <TokenForm />
  ) : (
    <button type="button" onClick={() => setOpen(true)}>Sign in</button>
  );
}

function TokenForm() {
  const field = useRef<HTMLInputElement>(null);
  useEffect(() => field.current?.focus(), []);
  return (
    <form
      class="token"
      onSubmit={(event) => {
        event.preventDefault();
        setToken(field.current!.value.trim());
        void connect();
      }}
    >
      <label>
        Access token <input ref={field} type="password" autocomplete="off" spellcheck={false} required />
      </label>
      <button type="submit" class="primary">Sign in</button>
    </form>
  );
}

function SignIn({ why }: { why: string }) {
  return (
    <main id="main" class="sign-in">
      <h1 tabIndex={-1}>Sign in</h1>
      <p role="alert">{why}</p>
      <TokenForm />
      <p class="hint">Paste what is in the file that <code>rgpu token new</code> has written. This tab keeps it until it is closed.</p>
      {token() && <button type="button" onClick={() => (setToken(""), void connect())}>Go on without a token</button>}
    </main>
  );
}

const THEMES = ["auto", "light", "dark"];

function Theme() {
  const [theme, setTheme] = useState(localStorage.getItem("rgpu-theme") ?? "auto");
  useEffect(() => {
    localStorage.setItem("rgpu-theme", theme);
    const dark = matchMedia("(prefers-color-scheme: dark)");
    function paint(): void {
      document.documentElement.dataset.theme = theme === "auto" ? (dark.matches ? "dark" : "light") : theme;
      dispatchEvent(new Event("rgpu-theme")); // for the charts
    }
    paint();
    dark.addEventListener("change", paint);
    return () => dark.removeEventListener("change", paint);
  }, [theme]);
  return (
    <label class="theme">
      Colours{" "}
      <select value={theme} onChange={(event) => setTheme(event.currentTarget.value)}>
        {THEMES.map((name) => <option value={name}>{name}</option>)}
      </select>
    </label>
  );
}

// What was done last; screen readers read it out.
function Said() {
  const [said, setSaid] = useState("");
  useEffect(() => onAnnounce(setSaid), []);
  return (
    <div role="status" class={said ? "said" : "unseen"}>
      {said}
      {said && <button type="button" onClick={() => setSaid("")}>Dismiss</button>}
    </div>
  );
}

addEventListener("pagehide", disconnect);
addEventListener("pageshow", (event) => event.persisted && void connect());
render(<Page />, document.getElementById("page")!);
