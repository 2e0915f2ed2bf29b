"""gpytorch: a Gaussian process with one step of training."""

# also: gpytorch.kernels.rbf_kernel RBFKernel.forward
import gpytorch
import torch


class Process(gpytorch.models.ExactGP):
    def __init__(self, x, y, likelihood):
        super().__init__(x, y, likelihood)
        self.mean = gpytorch.means.ConstantMean()
        self.kernel = gpytorch.kernels.ScaleKernel(gpytorch.kernels.RBFKernel())

    def forward(self, x):
        mean = self.mean(x)
        covariance = self.kernel(x)
        return gpytorch.distributions.MultivariateNormal(mean, covariance)


def features(x):
    y = x.sin()
    return y + x.cos()


torch.manual_seed(0)
x = torch.linspace(0, 1, 6)
y = torch.compile(features, backend="aot_eager")(x)
likelihood = gpytorch.likelihoods.GaussianLikelihood()
model = Process(x, y, likelihood).train()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
marginal = gpytorch.mlls.ExactMarginalLogLikelihood(likelihood, model)
kernel = torch.compile(gpytorch.kernels.RBFKernel(), backend="eager")
print(round(kernel(x[:, None], x[:, None]).to_dense().sum().item(), 4))
for _ in range(2):
    optimizer.zero_grad()
    loss = -marginal(model(x), y)
    loss.backward()
    optimizer.step()
    print(round(loss.item(), 4))
print(torch.rand(2).tolist())
