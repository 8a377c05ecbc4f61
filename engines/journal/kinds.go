package journal

// Kind is what an event is about. It is a closed set, which docs/events.md lists.
type Kind string

// The kinds. Those of an operator's changes are named as the commands of xpyd ctl.
const (
	Up        Kind = "up"
	Down      Kind = "down"
	Ejected   Kind = "ejected"
	Returned  Kind = "returned"
	Wedged    Kind = "wedged"
	Slow      Kind = "slow"
	Restarted Kind = "restarted"
	Banned    Kind = "banned"
	Unbanned  Kind = "unbanned"
	Plan      Kind = "plan"

	Add     Kind = "add"
	Change  Kind = "change"
	Drain   Kind = "drain"
	Disable Kind = "disable"
	Enable  Kind = "enable"
	Remove  Kind = "remove"
	Drained Kind = "drained"
	Left    Kind = "left"

	Started     Kind = "started"
	Stopping    Kind = "stopping"
	Reload      Kind = "reload"
	LogLevel    Kind = "log_level"
	Adapter     Kind = "adapter"
	Keys        Kind = "keys"
	StateFile   Kind = "state_file"
	HandOver    Kind = "hand_over"
	Certificate Kind = "certificate"
	Degraded    Kind = "degraded"
	Restored    Kind = "restored"
	NotReady    Kind = "not_ready"
	ReadyAgain  Kind = "ready_again"
)

// Meaning is a kind with what it says.
type Meaning struct {
	Kind  Kind
	About string
}

// Meanings lists all kinds.
func Meanings() []Meaning {
	return []Meaning{
		{Up, "the health checks find an engine up"},
		{Down, "they find it down"},
		{Ejected, "it gets no requests for a while, because of what it failed"},
		{Wedged, "it owes answers and gives none, so its requests go elsewhere"},
		{Returned, "its ejection is over"},
		{Slow, "it is far slower than its peers, or no longer"},
		{Restarted, "it has been started again, by its own metrics or handles"},
		{Banned, "transfers between the prefill engine and its partner fail, so the pair is not used"},
		{Unbanned, "they work again"},
		{Plan, "another number of the engines without a role only prefill, and why"},
		{Add, "an operator has added an engine"},
		{Change, "an operator has changed its weight or role"},
		{Drain, "an operator drains it"},
		{Disable, "an operator has disabled it"},
		{Enable, "an operator has enabled it"},
		{Remove, "an operator has removed it"},
		{Drained, "its last request and handle have ended"},
		{Left, "a removed engine has ended its last request and handle"},
		{Started, "the process serves"},
		{Stopping, "it drains, because it was told to stop"},
		{HandOver, "it starts a successor, hands over to it, or could not"},
		{Reload, "it has read its configuration again, or could not use it"},
		{Keys, "it has read the clients' keys again, or could not use them"},
		{StateFile, "a change was refused, because `state_file` could not be written, or it is written again"},
		{Certificate, "it has read certificates again, or could not use them"},
		{LogLevel, "an operator has changed the level of the log"},
		{Adapter, "an operator has had the engines load or unload an adapter"},
		{Degraded, "decode engines compute all prompts, as no prefill engine may"},
		{Restored, "prefill engines are back"},
		{NotReady, "no completion succeeds, nor does a probe, so `/readyz` says 503"},
		{ReadyAgain, "completions succeed again"},
	}
}
