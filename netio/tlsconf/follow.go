package tlsconf

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"sync"
	"sync/atomic"
	"time"
)

// Source is a configuration that follows its files. It is safe for concurrent use.
type Source struct {
	name string // of its section in the configuration
	load func(*files) (*tls.Config, error)
	read Read

	current atomic.Pointer[tls.Config]
	mu      sync.Mutex
	seen    []byte // what the files held; guarded by mu
}

func open(name string, read Read, load func(*files) (*tls.Config, error)) (*Source, error) {
	s := &Source{name: name, load: load, read: read}
	_, err := s.refresh()
	return s, err
}

// refresh reads the files again, and takes what they hold if it has changed and is valid.
func (s *Source) refresh() (changed bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f := &files{read: s.read}
	cfg, err := s.load(f)
	if err != nil {
		return false, inSection(s.name, err)
	}
	if s.current.Load() != nil && bytes.Equal(f.seen, s.seen) {
		return false, nil
	}
	s.seen = f.seen
	s.current.Store(cfg)
	return true, nil
}

func inSection(name string, err error) error {
	var f *Fault
	if errors.As(err, &f) {
		f.Key = name + "." + f.Key
	}
	return err
}

// expiry returns when the first certificate of the chain in force ends. ok is false without a chain.
func (s *Source) expiry() (first time.Time, ok bool) {
	if s == nil {
		return first, false
	}
	for _, cert := range s.current.Load().Certificates {
		for _, der := range cert.Certificate {
			c, err := x509.ParseCertificate(der)
			if err == nil && (!ok || c.NotAfter.Before(first)) {
				first, ok = c.NotAfter, true
			}
		}
	}
	return first, ok
}

// Server returns the configuration of a port. Each handshake takes the current certificate. A port that
// speaks plain HTTP has a nil Source, and gets nil.
func (s *Source) Server() *tls.Config {
	if s == nil {
		return nil
	}
	cfg := common()
	cfg.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) { return s.current.Load(), nil }
	return cfg
}

// Client returns the current configuration for a dial to host.
func (s *Source) Client(host string) *tls.Config {
	cfg := s.current.Load()
	if cfg.ServerName == "" {
		cfg = cfg.Clone()
		cfg.ServerName = host
	}
	return cfg
}

// Set holds the configurations of a process. Data and Admin are nil where a port speaks plain HTTP.
type Set struct {
	Data, Admin, Backends *Source

	told   map[string]string // by source, the failure that was reported last
	stop   context.CancelFunc
	ended  chan struct{}
	reload sync.Mutex
}

// Open reads all files for the first time. The keys in its errors have their sections.
func Open(data, admin Server, backends Client, read Read) (*Set, error) {
	set := &Set{told: map[string]string{}}
	for _, port := range []struct {
		name  string
		files Server
		to    **Source
	}{{"tls", data, &set.Data}, {"admin_tls", admin, &set.Admin}} {
		if !port.files.On() {
			continue
		}
		source, err := open(port.name, read, port.files.load)
		if err != nil {
			return nil, err
		}
		*port.to = source
	}
	var err error
	set.Backends, err = open("backend_tls", read, backends.load)
	return set, err
}

// Expiries returns, by section, when the certificates end that xpyd shows, in Unix time.
func (t *Set) Expiries() map[string]int64 {
	ends := map[string]int64{}
	for _, s := range []*Source{t.Data, t.Admin, t.Backends} {
		if end, ok := s.expiry(); ok {
			ends[s.name] = end.Unix()
		}
	}
	return ends
}

// Told is called for each change of a section's files, and once for each failure.
type Told func(section string, err error)

// Refresh reads the files again now, unless a reading is under way. Faulty files leave the former
// certificates in force.
func (t *Set) Refresh(told Told) {
	if !t.reload.TryLock() {
		return // the other reading may hang, on a mount whose server is gone
	}
	defer t.reload.Unlock()
	for _, s := range []*Source{t.Data, t.Admin, t.Backends} {
		if s == nil {
			continue
		}
		changed, err := s.refresh()
		text := ""
		if err != nil {
			text = err.Error()
		}
		if changed || text != "" && text != t.told[s.name] {
			told(s.name, err)
		}
		t.told[s.name] = text
	}
}

// Follow reads the files again at this interval, until Close. Reading a few small files is simpler than
// watching them, and works on every mount.
func (t *Set) Follow(every time.Duration, told Told) {
	ctx, stop := context.WithCancel(context.Background())
	t.stop, t.ended = stop, make(chan struct{})
	go func() {
		defer close(t.ended)
		tick := time.NewTicker(every)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				t.Refresh(told)
			case <-ctx.Done():
				return
			}
		}
	}()
}

// Close ends Follow. It does not wait for a file on a mount that hangs.
func (t *Set) Close() {
	t.stop()
	select {
	case <-t.ended:
	case <-time.After(time.Second):
	}
}
