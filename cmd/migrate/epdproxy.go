package migrate

import "strings"

// epdProxy has the flags of vLLM's disagg_epd_proxy.py (examples/disaggregated/disaggregated_encoder there).
func epdProxy() router {
	rules := read(one, "host", "port", "encode-servers-urls", "prefill-servers-urls", "decode-servers-urls")
	for _, more := range [][]rule{
		without("log.level debug; no log has prompts", none, "log-requests"),
		without("xpyd always passes images on as the client wrote them, so that a lost encoding can be computed again", none, "no-rewrite"),
		without(whyRetries, one, "decode-retries"),
		without("xpyd does not serve ECMooncakeConnector (docs/encode.md)", one, "ec-consumer-zmq-addrs", "ec-consumer-dp-size"),
	} {
		rules = append(rules, more...)
	}
	return router{
		name:  "epd-proxy",
		about: "The proxy sends OPENAI_API_KEY to the engines. Here that is backend_api_key_file.",
		rules: rules,
		fit: func(g given, p *plan) error {
			p.listen(g, "0.0.0.0", "8000")
			for _, pool := range []string{"encode", "prefill", "decode"} {
				flag := pool + "-servers-urls"
				var urls []string
				for _, u := range strings.Split(g.word(flag, ""), ",") {
					if u = strings.TrimSpace(u); u != "" {
						urls = append(urls, u)
					}
				}
				if word := strings.ToLower(g.word(flag, "")); pool == "prefill" && (word == "disable" || word == "none") {
					urls = nil
				}
				p.set(pool, list(urls), g.from(flag))
				if pool != "encode" {
					p.set(pool+"_policy", "random", "it takes any engine")
				}
			}
			return nil
		},
	}
}
