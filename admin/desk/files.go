package desk

import (
	"embed"
	"io/fs"
	"net/http"
	"strings"
)

//go:embed page
var embedded embed.FS

// policy lets the page load nothing from elsewhere, and run no code but its own files.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// Files serves the files of the page below prefix. They hold nothing of this process.
func Files(prefix string) http.Handler {
	files, err := fs.Sub(embedded, "page")
	if err != nil {
		panic("BUG: " + err.Error()) // the folder is part of the program
	}
	serve := http.StripPrefix(prefix, http.FileServerFS(files))
	return protect(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/") { // a folder, which nobody needs to see
			http.NotFound(w, r)
			return
		}
		serve.ServeHTTP(w, r)
	}))
}

// Index serves the page itself.
func Index() http.Handler {
	return protect(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		http.ServeFileFS(w, r, embedded, "page/status.html")
	}))
}

func protect(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", policy)
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Cache-Control", "no-cache") // a new version must not run with old files
		next.ServeHTTP(w, r)
	})
}
