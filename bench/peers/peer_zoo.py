"""The zoo's image models in PyTorch, layer by layer as Keras has them.

Padding is as Keras' 'same': an odd row or column comes after the image.
"""

from torch import nn
from torch.nn import functional as F

BN = {"eps": 1e-3, "momentum": 0.01}  # Keras' momentum 0.99


def same(x, kernel, stride, value=0.0):
    """Pads as Keras' 'same' does where PyTorch's own padding differs."""
    pads = []
    for size in (x.shape[-1], x.shape[-2]):
        total = max((-(-size // stride) - 1) * stride + kernel - size, 0)
        pads += [total // 2, total - total // 2]
    return F.pad(x, pads, value=value) if any(pads) else x


class ConvBn(nn.Module):
    """Convolution and batch normalization; ReLU and padding are the caller's."""

    def __init__(self, inputs, filters, kernel, stride=1, padding=0, bias=False, groups=1):
        super().__init__()
        self.conv = nn.Conv2d(inputs, filters, kernel, stride, padding, groups=groups, bias=bias)
        self.bn = nn.BatchNorm2d(filters, **BN)

    def forward(self, x):
        return self.bn(self.conv(x))


class SeparableBn(nn.Module):
    def __init__(self, inputs, filters):
        super().__init__()
        self.depthwise = nn.Conv2d(inputs, inputs, 3, padding=1, groups=inputs, bias=False)
        self.pointwise = nn.Conv2d(inputs, filters, 1, bias=False)
        self.bn = nn.BatchNorm2d(filters, **BN)

    def forward(self, x):
        return self.bn(self.pointwise(self.depthwise(x)))


class XceptionBlock(nn.Module):
    """Separable convolutions, max-pooling, and a strided shortcut."""

    def __init__(self, inputs, filters, first_relu=True):
        super().__init__()
        self.first_relu = first_relu
        self.sep1 = SeparableBn(inputs, filters[0])
        self.sep2 = SeparableBn(filters[0], filters[1])
        self.shortcut = ConvBn(inputs, filters[1], 1, 2)

    def forward(self, x):
        shortcut = self.shortcut(x)
        if self.first_relu:
            x = F.relu(x)
        x = self.sep2(F.relu(self.sep1(x)))
        return F.max_pool2d(same(x, 3, 2, float("-inf")), 3, 2) + shortcut


class XceptionMiddle(nn.Module):
    def __init__(self):
        super().__init__()
        self.seps = nn.ModuleList(SeparableBn(728, 728) for _ in range(3))

    def forward(self, x):
        y = x
        for sep in self.seps:
            y = sep(F.relu(y))
        return x + y


class Xception(nn.Module):
    """22,855,952 trainable parameters."""

    def __init__(self):
        super().__init__()
        self.conv1 = ConvBn(3, 32, 3, 2)
        self.conv2 = ConvBn(32, 64, 3)
        self.entry = nn.Sequential(
            XceptionBlock(64, (128, 128), first_relu=False),
            XceptionBlock(128, (256, 256)),
            XceptionBlock(256, (728, 728)),
        )
        self.middle = nn.Sequential(*(XceptionMiddle() for _ in range(8)))
        self.leave = XceptionBlock(728, (728, 1024))
        self.sep1 = SeparableBn(1024, 1536)
        self.sep2 = SeparableBn(1536, 2048)
        self.top = nn.Linear(2048, 1000)

    def forward(self, x):
        x = F.relu(self.conv2(F.relu(self.conv1(x))))
        x = self.leave(self.middle(self.entry(x)))
        x = F.relu(self.sep2(F.relu(self.sep1(x))))
        return self.top(x.mean((2, 3)))


class Bottleneck(nn.Module):
    """Keras' first ResNet: the stride is in the first 1 x 1."""

    def __init__(self, inputs, filters, outputs, stride, project):
        super().__init__()
        self.a = ConvBn(inputs, filters, 1, stride, bias=True)
        self.b = ConvBn(filters, filters, 3, padding=1, bias=True)
        self.c = ConvBn(filters, outputs, 1, bias=True)
        self.shortcut = ConvBn(inputs, outputs, 1, stride, bias=True) if project else None

    def forward(self, x):
        y = self.c(F.relu(self.b(F.relu(self.a(x)))))
        return F.relu(y + (x if self.shortcut is None else self.shortcut(x)))


class ResNet50(nn.Module):
    """25,583,592 trainable parameters."""

    def __init__(self):
        super().__init__()
        self.conv1 = ConvBn(3, 64, 7, 2, padding=3, bias=True)
        blocks, inputs = [], 64
        for stage, (filters, count) in enumerate(((64, 3), (128, 4), (256, 6), (512, 3))):
            for block in range(count):
                stride = 2 if stage > 0 and block == 0 else 1
                blocks.append(Bottleneck(inputs, filters, 4 * filters, stride, block == 0))
                inputs = 4 * filters
        self.blocks = nn.Sequential(*blocks)
        self.top = nn.Linear(2048, 1000)

    def forward(self, x):
        # Keras pads with zeros here; behind a ReLU these are never the largest alone.
        x = F.max_pool2d(F.relu(self.conv1(x)), 3, 2, padding=1)
        return self.top(self.blocks(x).mean((2, 3)))


class MobileNet(nn.Module):
    """4,231,976 trainable parameters."""

    def __init__(self):
        super().__init__()
        self.conv1 = ConvBn(3, 32, 3, 2)
        self.depthwise, self.pointwise = nn.ModuleList(), nn.ModuleList()
        inputs = 32
        plan = ((64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2))
        plan += ((512, 1),) * 5 + ((1024, 2), (1024, 1))
        for filters, stride in plan:
            padding = 0 if stride == 2 else 1
            self.depthwise.append(ConvBn(inputs, inputs, 3, stride, padding, groups=inputs))
            self.pointwise.append(ConvBn(inputs, filters, 1))
            inputs = filters
        self.top = nn.Conv2d(1024, 1000, 1)

    def forward(self, x):
        x = F.relu6(self.conv1(F.pad(x, (0, 1, 0, 1))))
        for depthwise, pointwise in zip(self.depthwise, self.pointwise):
            if depthwise.conv.stride[0] == 2:
                x = F.pad(x, (0, 1, 0, 1))
            x = F.relu6(pointwise(F.relu6(depthwise(x))))
        x = F.dropout(x.mean((2, 3), keepdim=True), 1e-3, self.training)
        return self.top(x).flatten(1)


IMAGE_MODELS = {
    "xception": (Xception, (3, 299, 299), 22_855_952),
    "resnet50": (ResNet50, (3, 224, 224), 25_583_592),
    "mobilenet": (MobileNet, (3, 224, 224), 4_231_976),
}
