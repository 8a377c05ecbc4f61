package admin

import (
	"net"
	"net/http"
)

// clientHeader is how the page and xpyd ctl say what a change was made with.
const clientHeader = "X-Xpyd-Client"

// actorOf says who asks for a change: the holder of a certificate, if there is one, the address, and with what.
func actorOf(r *http.Request) string {
	from, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		from = r.RemoteAddr
	}
	who := from
	if r.TLS != nil && len(r.TLS.PeerCertificates) > 0 {
		who = r.TLS.PeerCertificates[0].Subject.CommonName + " from " + from
	}
	switch r.Header.Get(clientHeader) {
	case "page":
		return who + ", on the page"
	case "ctl":
		return who + ", with xpyd ctl"
	}
	return who + ", over HTTP"
}
