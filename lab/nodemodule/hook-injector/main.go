// Command hook-injector is an NRI plugin that gives containers the OCI hooks of hooks.d folders.
//
// It does what NRI's own plugin of that name does, with the same library and the same precedence of annotations (the
// pod's hide the container's). That one is a module without a released version, so it cannot be pinned; ours also
// takes the folders and the socket as arguments.
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"maps"
	"time"

	"github.com/containerd/nri/pkg/api"
	"github.com/containerd/nri/pkg/stub"
	oci "github.com/opencontainers/runtime-spec/specs-go"
	"go.podman.io/common/pkg/hooks"
)

type injector struct {
	hooks *hooks.Manager
}

// CreateContainer answers with the hooks whose conditions the container meets.
func (i *injector) CreateContainer(
	_ context.Context, pod *api.PodSandbox, container *api.Container,
) (*api.ContainerAdjustment, []*api.ContainerUpdate, error) {
	annotations := map[string]string{}
	maps.Copy(annotations, container.GetAnnotations())
	maps.Copy(annotations, pod.GetAnnotations())
	spec := &oci.Spec{Process: &oci.Process{Args: container.GetArgs()}}
	if _, err := i.hooks.Hooks(spec, annotations, len(container.GetMounts()) > 0); err != nil {
		return nil, nil, fmt.Errorf("%s/%s: %w", pod.GetName(), container.GetName(), err)
	}
	if spec.Hooks == nil {
		return nil, nil, nil
	}
	adjustment := &api.ContainerAdjustment{}
	adjustment.AddHooks(api.FromOCIHooks(spec.Hooks))
	return adjustment, nil, nil
}

func run(ctx context.Context, socket, index string, folders []string) error {
	manager, err := hooks.New(ctx, folders, nil)
	if err != nil {
		return fmt.Errorf("hooks of %v: %w", folders, err)
	}
	plugin, err := stub.New(
		&injector{manager}, stub.WithPluginName("hook-injector"), stub.WithPluginIdx(index), stub.WithSocketPath(socket),
	)
	if err != nil {
		return err
	}
	if err := plugin.Start(ctx); err != nil {
		return fmt.Errorf("no NRI runtime at %s: %w", socket, err)
	}
	fmt.Printf("%s registered\n", time.Now().Format(time.RFC3339))
	plugin.Wait()
	return nil
}

func main() {
	socket := flag.String("socket", "/var/run/nri/nri.sock", "NRI's socket")
	index := flag.String("index", "10", "two digits: the place among the plugins")
	flag.Parse()
	if flag.NArg() == 0 {
		log.Fatal("usage: hook-injector [-socket PATH] [-index NN] HOOKS_FOLDER ...")
	}
	if err := run(context.Background(), *socket, *index, flag.Args()); err != nil {
		log.Fatal(err)
	}
}
