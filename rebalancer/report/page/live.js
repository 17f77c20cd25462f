(() => {
  const now = document.getElementById("now");
  if (!now) return;
  const { last } = now.dataset;
  const item = (textContent) => Object.assign(document.createElement("li"), { textContent });
  const show = (id, texts) => document.getElementById(id).replaceChildren(...texts.map(item));
  const newer = document.getElementById("newer");
  // A page that somebody works with is not taken away; it says that there is a newer one.
  let touched = false;
  for (const kind of ["pointerdown", "keydown"]) addEventListener(kind, () => { touched = true; }, { once: true });
  const ask = async () => {
    try {
      const state = await (await fetch("state", { cache: "no-store" })).json();
      now.textContent = state.now;
      document.getElementById("run-mode").textContent = state.mode;
      document.getElementById("next-run").textContent = state.next;
      show("troubles", state.troubles);
      show("steps", state.steps);
      if (String(state.last) !== last) {
        if (!touched) {
          // Else the browser keeps in its place what stood on top, and the strip of runs grows out of the screen.
          history.scrollRestoration = scrollY === 0 ? "manual" : "auto";
          location.reload();
          return;
        }
        newer.hidden = false;
      }
    } catch {
      now.textContent = "No answer: the process or the connection to it has ended.";
    }
    setTimeout(ask, 2000);
  };
  setTimeout(ask, 500);
})();
