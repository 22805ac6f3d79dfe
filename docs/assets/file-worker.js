// Browsers start no worker from a page that was opened as a file. Where the search asks for one, its script is run in a
// hidden frame instead, and what either side posts is handed over as an event.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      frame.srcdoc = "<body></body>";
      this.inside = new Promise((started) => {
        frame.addEventListener("load", () => {
          const inside = frame.contentWindow;
          inside.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }));
          const script = inside.document.createElement("script");
          script.src = url;
          script.addEventListener("load", () => started(inside));
          inside.document.body.append(script);
        });
      });
      document.body.append(frame);
    }

    async postMessage(data) {
      const inside = await this.inside;
      inside.dispatchEvent(new MessageEvent("message", { data }));
    }
  };
}
