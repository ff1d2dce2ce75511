// Command controllers is what users of Kubernetes run beside a scheduler, as one program that is
// linked once. Called karpenter, it is Karpenter with nodes of KWOK. Called controllers, it runs
// those that its arguments name (kubeflow, jobset, trainer, ray, lws), each with a manager of its
// own, as its own program would.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"

	"go.uber.org/zap/zapcore"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	_ "k8s.io/component-base/metrics/prometheus/version"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
	metrics "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/webhook"
)

// A part adds one project's controllers to a manager.
type part struct {
	scheme  []func(*runtime.Scheme) error
	setup   func(context.Context, ctrl.Manager) error
	options func(*ctrl.Options)
	// webhooks says where the part listens for the API server: the first port and this.
	webhooks int
}

var parts = map[string]part{
	"kubeflow": kubeflow,
	"jobset":   jobset,
	"trainer":  trainer,
	"ray":      ray,
	"lws":      lws,
}

func main() {
	if filepath.Base(os.Args[0]) == "karpenter" {
		karpenter()
		return
	}
	port := flag.Int("webhook-port", 0, "first of the ports for webhooks; 0 for none")
	certificates := flag.String("webhook-certificates", "", "folder with tls.crt and tls.key")
	flag.Parse()
	ctrl.SetLogger(zap.New(zap.UseDevMode(true), zap.StacktraceLevel(zapcore.DPanicLevel)))
	ctx := ctrl.SetupSignalHandler()
	ended := make(chan error)
	for _, name := range flag.Args() {
		made, err := manager(ctx, name, *port, *certificates)
		if err != nil {
			fatal(name, err)
		}
		go func() { ended <- made.Start(ctx) }()
	}
	if err := <-ended; err != nil {
		fatal("a manager", err)
	}
}

func manager(ctx context.Context, name string, port int, certificates string) (ctrl.Manager, error) {
	part, known := parts[name]
	if !known {
		return nil, fmt.Errorf("there is no such part")
	}
	scheme := runtime.NewScheme()
	for _, add := range append(part.scheme, clientgoscheme.AddToScheme) {
		if err := add(scheme); err != nil {
			return nil, err
		}
	}
	once := true // names of controllers are the program's own business: there are several here
	options := ctrl.Options{
		Scheme:                 scheme,
		Metrics:                metrics.Options{BindAddress: "0"},
		HealthProbeBindAddress: "0",
		Controller:             config.Controller{SkipNameValidation: &once},
		WebhookServer: webhook.NewServer(webhook.Options{
			Host: "127.0.0.1", Port: port + part.webhooks, CertDir: certificates,
		}),
	}
	if part.options != nil {
		part.options(&options)
	}
	given := ctrl.GetConfigOrDie()
	given.QPS, given.Burst = 500, 500
	made, err := ctrl.NewManager(given, options)
	if err != nil {
		return nil, err
	}
	return made, part.setup(ctx, made)
}

func fatal(who string, err error) {
	fmt.Fprintf(os.Stderr, "%s: %v\n", who, err)
	os.Exit(1)
}
